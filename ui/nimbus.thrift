// What `squall thrift` serves of Storm's Nimbus: names and numbers are Storm's, so its clients need no other file. What is
// left out here is unknown to the server: it skips such fields, and says UNKNOWN_METHOD to such calls.

exception AlreadyAliveException { 1: required string msg }
exception AuthorizationException { 1: required string msg }
exception InvalidTopologyException { 1: required string msg }
exception NotAliveException { 1: required string msg }

struct TopologySummary {
  1: required string id
  2: required string name
  3: required i32 num_tasks
  4: required i32 num_executors
  5: required i32 num_workers
  6: required i32 uptime_secs
  7: required string status
  8: optional string storm_version
  514: optional string owner
}

struct SupervisorSummary {
  1: required string host
  2: required i32 uptime_secs
  3: required i32 num_workers
  4: required i32 num_used_workers
  5: required string supervisor_id
  6: optional string version
  12: optional bool blacklisted
}

struct NimbusSummary {
  1: required string host
  2: required i32 port
  3: required i32 uptime_secs
  4: required bool isLeader
  5: required string version
}

struct ClusterSummary {
  1: required list<SupervisorSummary> supervisors
  3: required list<TopologySummary> topologies
  4: required list<NimbusSummary> nimbuses
}

struct ErrorInfo {
  1: required string error
  2: required i32 error_time_secs
  3: optional string host
  4: optional i32 port
}

struct GlobalStreamId {
  1: required string componentId
  2: required string streamId
}

// Figures are by window, then by stream. The one window is ":all-time".
struct BoltStats {
  1: required map<string, map<GlobalStreamId, i64>> acked
  2: required map<string, map<GlobalStreamId, i64>> failed
  3: required map<string, map<GlobalStreamId, double>> process_ms_avg
  4: required map<string, map<GlobalStreamId, i64>> executed
  5: required map<string, map<GlobalStreamId, double>> execute_ms_avg
}

struct SpoutStats {
  1: required map<string, map<string, i64>> acked
  2: required map<string, map<string, i64>> failed
  3: required map<string, map<string, double>> complete_ms_avg
}

union ExecutorSpecificStats {
  1: BoltStats bolt
  2: SpoutStats spout
}

struct ExecutorStats {
  1: required map<string, map<string, i64>> emitted
  2: required map<string, map<string, i64>> transferred
  3: required ExecutorSpecificStats specific
  4: required double rate
}

struct ExecutorInfo {
  1: required i32 task_start
  2: required i32 task_end
}

struct ExecutorSummary {
  1: required ExecutorInfo executor_info
  2: required string component_id
  3: required string host
  4: required i32 port
  5: required i32 uptime_secs
  7: optional ExecutorStats stats
}

struct TopologyInfo {
  1: required string id
  2: required string name
  3: required i32 uptime_secs
  4: required list<ExecutorSummary> executors
  5: required string status
  6: required map<string, list<ErrorInfo>> errors
  8: optional string storm_version
  514: optional string owner
}

enum NumErrorsChoice { ALL, NONE, ONE }

struct GetInfoOptions { 1: optional NumErrorsChoice num_err_choice }

struct KillOptions { 1: optional i32 wait_secs }

struct RebalanceOptions {
  1: optional i32 wait_secs
  2: optional i32 num_workers
  3: optional map<string, i32> num_executors
  4: optional map<string, map<string, double>> topology_resources_overrides
  5: optional string topology_conf_overrides
}

service Nimbus {
  ClusterSummary getClusterInfo() throws (1: AuthorizationException aze)
  NimbusSummary getLeader() throws (1: AuthorizationException aze)
  string getNimbusConf() throws (1: AuthorizationException aze)
  bool isTopologyNameAllowed(1: string name) throws (1: AuthorizationException aze)

  list<TopologySummary> getTopologySummaries() throws (1: AuthorizationException aze)
  TopologySummary getTopologySummary(1: string id) throws (1: NotAliveException e, 2: AuthorizationException aze)
  TopologySummary getTopologySummaryByName(1: string name) throws (1: NotAliveException e, 2: AuthorizationException aze)
  TopologyInfo getTopologyInfo(1: string id) throws (1: NotAliveException e, 2: AuthorizationException aze)
  TopologyInfo getTopologyInfoByName(1: string name) throws (1: NotAliveException e, 2: AuthorizationException aze)
  TopologyInfo getTopologyInfoWithOpts(1: string id, 2: GetInfoOptions options)
    throws (1: NotAliveException e, 2: AuthorizationException aze)
  TopologyInfo getTopologyInfoByNameWithOpts(1: string name, 2: GetInfoOptions options)
    throws (1: NotAliveException e, 2: AuthorizationException aze)

  void activate(1: string name) throws (1: NotAliveException e, 2: AuthorizationException aze)
  void deactivate(1: string name) throws (1: NotAliveException e, 2: AuthorizationException aze)
  void killTopology(1: string name) throws (1: NotAliveException e, 2: AuthorizationException aze)
  void killTopologyWithOpts(1: string name, 2: KillOptions options)
    throws (1: NotAliveException e, 2: AuthorizationException aze)
  void rebalance(1: string name, 2: RebalanceOptions options)
    throws (1: NotAliveException e, 2: InvalidTopologyException ite, 3: AuthorizationException aze)

  // Refused, with a text that says what to do instead. Their other arguments are skipped.
  string beginFileUpload() throws (1: AuthorizationException aze)
  void submitTopology(1: string name)
    throws (1: AlreadyAliveException e, 2: InvalidTopologyException ite, 3: AuthorizationException aze)
  void submitTopologyWithOpts(1: string name)
    throws (1: AlreadyAliveException e, 2: InvalidTopologyException ite, 3: AuthorizationException aze)
}

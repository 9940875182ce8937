import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HashMap;
import java.util.Map;
import java.util.StringTokenizer;
import org.apache.storm.Config;
import org.apache.storm.StormSubmitter;
import org.apache.storm.generated.KillOptions;
import org.apache.storm.spout.SpoutOutputCollector;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.ShellBolt;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.BoltDeclarer;
import org.apache.storm.topology.IRichBolt;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.topology.base.BaseRichSpout;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;
import org.apache.storm.utils.NimbusClient;
import org.apache.storm.utils.Utils;

/**
 * The measured topology on Apache Storm: lines, split, count; every line tracked.
 *
 * <p>{@code WordCount submit NAME FILE DIRECTORY LINES_PER_SEC SPLIT KEY=VALUE...} and {@code WordCount kill NAME}. SPLIT is
 * {@code java}, or the command of a bolt that speaks multilang. Keys that begin with {@code topology.} go into the
 * configuration; {@code spouts}, {@code splits} and {@code counts} are numbers of executors.
 *
 * <p>Each spout task publishes in DIRECTORY/TASK.progress, many times a second: the moment on the monotonic clock, the lines
 * acked and failed until then, and how many of them took how long from the moment they were due.
 */
public final class WordCount {
    /** Of the histogram: eight buckets for each doubling, from a microsecond. */
    private static final int BUCKETS = 256;
    private static final int PER_DOUBLING = 8;

    /** Emits the lines of a file over and over, at full speed or so many a second. */
    public static final class Lines extends BaseRichSpout {
        private static final long PUBLISH_NANOS = 20_000_000L;
        private static final int BURST = 16;
        private final String file;
        private final String directory;
        private final double linesPerSec;
        private transient SpoutOutputCollector collector;
        private transient String[] lines;
        private transient ByteBuffer progress;
        private transient long[] histogram;
        private int next;
        private int step;
        private long acked;
        private long failed;
        private long published;
        private long due;
        private double periodNanos;
        private long emitted;
        private long began;

        Lines(String file, String directory, double linesPerSec) {
            this.file = file;
            this.directory = directory;
            this.linesPerSec = linesPerSec;
        }

        @Override
        public void open(Map<String, Object> conf, TopologyContext context, SpoutOutputCollector out) {
            collector = out;
            step = context.getComponentTasks(context.getThisComponentId()).size();
            next = context.getThisTaskIndex();
            periodNanos = linesPerSec > 0 ? 1e9 * step / linesPerSec : 0;
            histogram = new long[BUCKETS];
            Path path = Path.of(directory, context.getThisTaskId() + ".progress");
            try {
                lines = Files.readString(Path.of(file)).split("\n", -1);
                int size = 8 * (4 + BUCKETS);
                try (FileChannel channel = FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.READ,
                        StandardOpenOption.WRITE)) {
                    progress = channel.map(FileChannel.MapMode.READ_WRITE, 0, size).order(ByteOrder.LITTLE_ENDIAN);
                }
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        @Override
        public void nextTuple() {
            long now = System.nanoTime();
            if (now - published > PUBLISH_NANOS) {
                publish(now);
            }
            if (periodNanos == 0) {
                for (int count = 0; count < BURST; count++) {
                    emit(now);
                }
                return;
            }
            if (began == 0) {
                began = now;
            }
            // From the moment at which a line was due, however late it is emitted.
            while ((due = began + (long) (emitted * periodNanos)) <= now) {
                emit(due);
            }
        }

        private void emit(long at) {
            collector.emit(new Values(lines[next]), at);
            emitted++;
            next += step;
            if (next >= lines.length) {
                next -= lines.length;
            }
        }

        @Override
        public void ack(Object id) {
            acked++;
            double micros = (System.nanoTime() - (Long) id) / 1e3;
            int bucket = micros < 1 ? 0 : (int) (PER_DOUBLING * Math.log(micros) / Math.log(2));
            histogram[Math.min(bucket, BUCKETS - 1)]++;
        }

        @Override
        public void fail(Object id) {
            failed++;
        }

        /** An odd first word says that the rest is being written. */
        private void publish(long now) {
            published = now;
            long version = progress.getLong(0);
            progress.putLong(0, version + 1);
            progress.putLong(8, now);
            progress.putLong(16, acked);
            progress.putLong(24, failed);
            for (int bucket = 0; bucket < BUCKETS; bucket++) {
                progress.putLong(8 * (4 + bucket), histogram[bucket]);
            }
            progress.putLong(0, version + 2);
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("line"));
        }
    }

    /** Splits a line into words. */
    public static final class Split extends BaseRichBolt {
        private transient OutputCollector collector;

        @Override
        public void prepare(Map<String, Object> conf, TopologyContext context, OutputCollector out) {
            collector = out;
        }

        @Override
        public void execute(Tuple line) {
            StringTokenizer words = new StringTokenizer(line.getString(0));
            while (words.hasMoreTokens()) {
                collector.emit(line, new Values(words.nextToken()));
            }
            collector.ack(line);
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("word"));
        }
    }

    /** Splits a line into words in a process of its own, which speaks multilang. */
    public static final class ShellSplit extends ShellBolt implements IRichBolt {
        ShellSplit(String... command) {
            super(command);
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("word"));
        }

        @Override
        public Map<String, Object> getComponentConfiguration() {
            return null;
        }
    }

    /** Counts words in memory. */
    public static final class Count extends BaseRichBolt {
        private transient OutputCollector collector;
        private transient Map<String, long[]> counts;

        @Override
        public void prepare(Map<String, Object> conf, TopologyContext context, OutputCollector out) {
            collector = out;
            counts = new HashMap<>();
        }

        @Override
        public void execute(Tuple word) {
            counts.computeIfAbsent(word.getString(0), ignored -> new long[1])[0]++;
            collector.ack(word);
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
        }
    }

    private WordCount() {
    }

    public static void main(String[] args) throws Exception {
        if (args[0].equals("kill")) {
            KillOptions options = new KillOptions();
            options.set_wait_secs(0);
            try (NimbusClient client = NimbusClient.Builder.withConf(Utils.readStormConfig()).build()) {
                client.getClient().killTopologyWithOpts(args[1], options);
            }
            return;
        }
        Config conf = new Config();
        Map<String, Integer> executors = new HashMap<>();
        for (int at = 6; at < args.length; at++) {
            String[] setting = args[at].split("=", 2);
            if (setting[0].startsWith("topology.")) {
                conf.put(setting[0], value(setting[1]));
            } else {
                executors.put(setting[0], Integer.valueOf(setting[1]));
            }
        }
        TopologyBuilder builder = new TopologyBuilder();
        builder.setSpout("lines", new Lines(args[2], args[3], Double.parseDouble(args[4])), executors.get("spouts"));
        IRichBolt split = args[5].equals("java") ? new Split() : new ShellSplit(args[5].split(" "));
        BoltDeclarer splits = builder.setBolt("split", split, executors.get("splits"));
        splits.localOrShuffleGrouping("lines");
        builder.setBolt("count", new Count(), executors.get("counts")).fieldsGrouping("split", new Fields("word"));
        StormSubmitter.submitTopology(args[1], conf, builder.createTopology());
    }

    private static Object value(String text) {
        if (text.matches("-?[0-9]+")) {
            return Long.valueOf(text);
        }
        if (text.matches("-?[0-9]*[.][0-9]+")) {
            return Double.valueOf(text);
        }
        return text.equals("true") || text.equals("false") ? (Object) Boolean.valueOf(text) : text;
    }
}

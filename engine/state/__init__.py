"""State that counts each tuple once. One example goes through all files: `lines` reads a file, `split` makes words,
`count` is a StatefulBolt; the record at hand is line 7, "to be to", of partition 1.

::

    lines   numbers it: identity (1, 7, path 0)          records/identified.py, settled.py
    split   three emits: paths 1, 2, 3                   records/identified.py, lineage.py
    count   the batch is (to, 1|7|1), (be, 1|7|2), (to, 1|7|3)

      known?    none was absorbed, 7 is not settled      records/absorbed.py, floors.py
      execute   self.state["to"] = 2, ["be"] = 1         stateful_task.py, keyed.py; emits wait in held_emits.py
      commit    both counts, the three identities and    commits.py, task_store.py
                what was emitted, or nothing of it
      after it  the emits leave, the tuples are acked

    the worker dies before lines hears of an ack: line 7 comes again, with the same identities
      known?    all three: nothing is executed; what they emitted is emitted once more, as it was

    lines   7 is acked: settled, once 0 to 6 are, too    records/settled.py, ranges.py ─► record_store.py, on disk
    count   sees that (floors.py) and forgets the three; from now on it is known by its number that 7 is done

A sink (sinks.py, sink_task.py) commits its rows in place of counts, and writes them outside before the ack. A bolt with
windows (windowing/) commits tuples in their panes; what a window emits is committed with its end, and a spout of its
own emits it (windowing/results.py). event_time.py takes the newest timestamp below what is settled for the time of a
partition. dealing.py gives the state to another number of tasks, reading.py shows it from outside.
"""

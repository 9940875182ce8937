"""The shortest topology: functions as a spout and bolts.

    squall run examples/hello_world.py --workers 2
"""

from squall import TopologyBuilder, bolt, spout


@spout("n")
def numbers():
    return range(10)


@bolt("square")
def square(tup):
    yield tup["n"] ** 2


builder = TopologyBuilder()
builder.set_spout("numbers", numbers)
builder.set_bolt("square", square, parallelism=2).shuffle_grouping("numbers")
builder.set_bolt("show", bolt(print)).global_grouping("square")
topology = builder.build()

"""Codes of updates, and of kinds of values."""

import numpy as np

#: Updates by their codes; a heartbeat only says that its stream has reached a time.
OPS = ("+v", "-v", "+e", "-e", "+av", "-av", "+ae", "-ae", "heartbeat")
ADD_VERTEX, REMOVE_VERTEX, ADD_EDGE, REMOVE_EDGE, SET_VERTEX, UNSET_VERTEX, SET_EDGE, UNSET_EDGE, HEARTBEAT = range(9)
#: By the code of an update, and one more that is no update, whether it is one of a vertex or of an edge.
OF_VERTICES, OF_EDGES = (
    np.array([op in one for op in (*OPS, None)]) for one in (("+v", "-v", "+av", "-av"), ("+e", "-e", "+ae", "-ae"))
)

#: Kinds of values of attributes; there is no value of the first one.
NONE, INTEGER, FLOAT, BOOLEAN, TEXT, TIME, LIST = range(7)
#: Instead of a kind, of a value that is not accepted.
REFUSED = -1

#: What becomes of late records, by the number of the option.
LATE = ("side", "apply", "drop")

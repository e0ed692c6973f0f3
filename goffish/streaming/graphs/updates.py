"""Codes of updates, and of kinds of values."""

#: Updates by their codes; a heartbeat only says that its stream has reached a time.
OPS = ("+v", "-v", "+e", "-e", "+av", "-av", "+ae", "-ae", "heartbeat")
ADD_VERTEX, REMOVE_VERTEX, ADD_EDGE, REMOVE_EDGE, SET_VERTEX, UNSET_VERTEX, SET_EDGE, UNSET_EDGE, HEARTBEAT = range(9)

#: Kinds of values of attributes; there is no value of the first one.
NONE, INTEGER, FLOAT, BOOLEAN, TEXT, TIME, LIST = range(7)

"""CGQL, the language of continuous queries of live graphs."""

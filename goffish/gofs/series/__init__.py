"""Time series in a store: values that change from instance to instance on a topology that stays.

A store with a time series is an ordinary store, the *template*, with more files:

* ``series`` (of the first partition): beginnings and ends of the instances, schema, packing.
* ``series-elements`` (of every partition): rows and bins, see `Elements`.
* ``series.PLACE.NAME.gG.bB``: the values of one attribute in one group of successive instances and one bin of
  subgraphs; Parquet, see `encode_slice`. There are ``ceil(n / pack) * min(bins, subgraphs) * attributes`` of them.
* ``series-growth`` (of every partition), once the template has grown: which rows the slices of its generations have,
  see `StoredRows`.

All are named by their content and listed with their checksums in the manifest, like every file of a store.
See docs/specs/time-series.md, section 5.
"""

from goffish.gofs.series.cache import SeriesCounters
from goffish.gofs.series.growth import Growth, grown_template
from goffish.gofs.series.model import Attribute, InstanceData, SeriesSchema, SparseColumn, moment
from goffish.gofs.series.reading import Instance, Series, as_series, open_series
from goffish.gofs.series.slices import Elements
from goffish.gofs.series.write import Compaction, append_instances, compact_series, write_series

__all__ = [
    "Attribute", "Compaction", "Elements", "Growth", "Instance", "InstanceData", "Series", "SeriesCounters",
    "SeriesSchema", "SparseColumn", "append_instances", "as_series", "compact_series", "grown_template", "moment",
    "open_series", "write_series",
]  # fmt: skip

package telemetry

import (
	"time"

	"github.com/rdmakv/rdmakv/store"
)

// What metrics tell about a store. Each number has a metric of its own, with its
// unit in the name, because a query cannot add or compare what one metric mixes.
// TestStoreMetrics finds a number of store.Stats that is missing here.

// A numberOf is a metric and where its value stands in T.
type numberOf[T any] struct {
	desc    desc
	counter bool
	value   func(*T) float64
	labels  []string
}

// A number is what metrics show.
type number interface {
	~int | ~int64 | ~uint16 | ~uint64
}

func countOf[T any, N number](name, help string, value func(*T) N) numberOf[T] {
	return numberOf[T]{newDesc(name, help), true, func(st *T) float64 { return float64(value(st)) }, nil}
}

func gaugeOf[T any, N number](name, help string, value func(*T) N) numberOf[T] {
	return numberOf[T]{newDesc(name, help), false, func(st *T) float64 { return float64(value(st)) }, nil}
}

func flagOf[T any](name, help string, value func(*T) bool) numberOf[T] {
	return numberOf[T]{newDesc(name, help), false, func(st *T) float64 { return boolNumber(value(st)) }, nil}
}

// numbers shows all of a table.
func numbers[T any](out sink, table []numberOf[T], st *T) {
	for _, n := range table {
		if v := n.value(st); n.counter {
			out.counter(n.desc, v, n.labels...)
		} else {
			out.gauge(n.desc, v, n.labels...)
		}
	}
}

// readsBy is the reads that SENDs asked for, by what answered them.
func readsBy(source string, value func(*store.Stats) uint64) numberOf[store.Stats] {
	return numberOf[store.Stats]{descReads, true, func(st *store.Stats) float64 { return float64(value(st)) }, []string{source}}
}

var descReads = newDesc("store_reads_total", "Reads asked for by SEND, by what answered them: memory, memory that proves absence, or the disk.", "source")

var storeNumbers = []numberOf[store.Stats]{
	gaugeOf("store_shards", "Shards.", func(s *store.Stats) int { return s.Shards }),
	gaugeOf("store_epoch", "Openings of the store so far; 65,535 end it.", func(s *store.Stats) uint16 { return s.Epoch }),
	{newDesc("store_uptime_seconds", "Time since the store was opened."), false, func(s *store.Stats) float64 { return s.Uptime.Seconds() }, nil},
	{newDesc("store_time_seconds", "The time by which keys expire, in seconds since 1970."), false, func(s *store.Stats) float64 {
		if s.ServerTime.IsZero() {
			return 0
		}
		return float64(s.ServerTime.UnixMicro()) / 1e6
	}, nil},
	flagOf("store_fenced", "1 once durability is gone: nothing is acknowledged any more.", func(s *store.Stats) bool { return s.Fenced }),

	gaugeOf("store_keys", "Keys in memory.", func(s *store.Stats) uint64 { return s.Keys }),
	gaugeOf("store_whole_values", "Values that are stored in parts.", func(s *store.Stats) int { return s.Parts.Values }),
	gaugeOf("store_uploads", "Values in parts that are being put.", func(s *store.Stats) int { return s.Parts.Uploads }),
	gaugeOf("store_uploads_dying", "Values in parts that were replaced or given up, whose parts are there still.", func(s *store.Stats) int { return s.Parts.Dying }),
	gaugeOf("store_parts", "Parts of all of these, at most; store_keys counts them, too.", func(s *store.Stats) int { return s.Parts.Parts }),
	gaugeOf("store_parts_bytes", "Their bytes, at most.", func(s *store.Stats) int64 { return s.Parts.Bytes }),
	countOf("store_parts_collected_total", "Parts that were removed because nobody needed them any more.", func(s *store.Stats) int64 { return s.Parts.Collected }),
	gaugeOf("store_pebble_only_slots", "Index slots of keys that are not in memory, some of them stale.", func(s *store.Stats) uint64 { return s.PebbleOnly }),
	gaugeOf("store_slotless_keys", "Upper bound of the keys without an index slot, as far as counted.", func(s *store.Stats) uint64 { return s.Slotless }),
	countOf("store_evicted_items_total", "Items that left memory for others.", func(s *store.Stats) uint64 { return s.Evicted }),
	countOf("store_promoted_items_total", "Items that a get brought back into memory.", func(s *store.Stats) uint64 { return s.Promoted }),
	countOf("store_promotions_refused_total", "Gets whose key was not worth the coldest item in memory.", func(s *store.Stats) uint64 { return s.Refused }),
	countOf("store_promotions_overtaken_total", "Promotions that a write was faster than.", func(s *store.Stats) uint64 { return s.Overtaken }),
	countOf("store_slots_dropped_total", "Slots of keys out of memory that were given up for a count.", func(s *store.Stats) uint64 { return s.SlotsDropped }),
	countOf("store_slots_swept_total", "Slots of deleted keys out of memory that were cleared.", func(s *store.Stats) uint64 { return s.SlotsSwept }),
	countOf("store_swept_keys_total", "Keys that were read from the disk for that.", func(s *store.Stats) uint64 { return s.SweptKeys }),
	countOf("store_dropped_keys_total", "Keys that a cache forgot for others.", func(s *store.Stats) uint64 { return s.Dropped }),
	countOf("store_cleared_runs_total", "Runs of memory that were emptied for another size class.", func(s *store.Stats) uint64 { return s.Cleared }),
	countOf("store_touches_total", "Gets reported by clients.", func(s *store.Stats) uint64 { return s.Touches }),

	gaugeOf("store_memory_used_bytes", "Slab pages and index segments in use, retired ones included.", func(s *store.Stats) uint64 { return s.MemoryUsed }),
	gaugeOf("store_memory_limit_bytes", "What regions may take.", func(s *store.Stats) uint64 { return s.MemoryLimit }),
	gaugeOf("store_regions", "Regions.", func(s *store.Stats) int { return s.Regions }),
	gaugeOf("store_region_bytes", "What regions take.", func(s *store.Stats) uint64 { return s.RegionBytes }),
	gaugeOf("store_item_bytes", "Slab pages and spans in use.", func(s *store.Stats) uint64 { return s.ItemBytes }),
	gaugeOf("store_item_live_bytes", "The part of them in places that hold items.", func(s *store.Stats) uint64 { return s.ItemLive }),
	gaugeOf("store_index_bytes", "Segments and directories of the index in use.", func(s *store.Stats) uint64 { return s.IndexBytes }),
	gaugeOf("store_retired_bytes", "Memory that waits for a lease before it is used again.", func(s *store.Stats) uint64 { return s.RetiredBytes }),
	gaugeOf("store_held_bytes", "Answers kept for readers.", func(s *store.Stats) int64 { return s.HeldBytes }),
	gaugeOf("store_sketch_bytes", "The count of what is read often; on the heap.", func(s *store.Stats) uint64 { return s.SketchBytes }),
	gaugeOf("store_inflight_bytes", "Keys and values of writes that were accepted and are not done.", func(s *store.Stats) int64 { return s.InflightBytes }),
	gaugeOf("store_inflight_writes", "Writes that were accepted and are not done.", func(s *store.Stats) int { return s.Inflight }),

	countOf("store_published_writes_total", "Writes published.", func(s *store.Stats) uint64 { return s.Published }),
	countOf("store_commits_total", "Commits: groups of writes that were made durable together.", func(s *store.Stats) uint64 { return s.Batches }),
	readsBy("memory", func(s *store.Stats) uint64 { return s.Resident }),
	readsBy("absence", func(s *store.Stats) uint64 { return s.Absent }),
	readsBy("disk", func(s *store.Stats) uint64 { return s.FromDisk }),
	countOf("store_scans_total", "Pages of scans.", func(s *store.Stats) uint64 { return s.Scans }),
	countOf("store_holds_total", "Answers kept for readers so far.", func(s *store.Stats) uint64 { return s.Holds }),
	countOf("store_holds_aside_total", "Of them, those for which there was no room in registered memory.", func(s *store.Stats) uint64 { return s.HoldsAside }),
	countOf("store_probes_total", "Writes for which the disk was asked whether the key is there.", func(s *store.Stats) uint64 { return s.Probes }),
	countOf("store_no_memory_total", "Puts and fills for which there was no place in memory.", func(s *store.Stats) uint64 { return s.NoMemory }),
	countOf("store_retries_total", "Writes that came again and were answered as before.", func(s *store.Stats) uint64 { return s.Retries }),
	countOf("store_retries_too_late_total", "Writes that came again when nothing was remembered of them.", func(s *store.Stats) uint64 { return s.TooLate }),
	gaugeOf("store_results", "Results of requests that are remembered for retries.", func(s *store.Stats) int { return s.Remembered }),
	countOf("store_results_evicted_total", "Results forgotten before their time because their owner had too many.", func(s *store.Stats) uint64 { return s.ResultsEvicted }),
	flagOf("store_results_short", "1 if that was so not long ago.", func(s *store.Stats) bool { return s.ResultsShort }),
	countOf("store_conditions_refused_total", "Writes whose condition did not hold.", func(s *store.Stats) uint64 { return s.Conditions }),
	countOf("store_batch_writes_total", "Batches of clients.", func(s *store.Stats) uint64 { return s.BatchWrites }),
	countOf("store_expired_keys_total", "Keys removed because their time was over.", func(s *store.Stats) uint64 { return s.Expired }),
	countOf("store_writes_unsettled_total", "Writes refused because their key never kept still.", func(s *store.Stats) uint64 { return s.Unsettled }),

	countOf("store_damaged_items_total", "Items in memory that did not verify.", func(s *store.Stats) uint64 { return s.Damaged }),
	countOf("store_scrubbed_items_total", "Items verified by the background pass.", func(s *store.Stats) uint64 { return s.Scrubbed }),
	countOf("store_scrubbed_bytes_total", "Bytes verified by the background pass.", func(s *store.Stats) uint64 { return s.ScrubbedBytes }),
	countOf("store_scrub_passes_total", "Passes over all of memory.", func(s *store.Stats) uint64 { return s.ScrubPasses }),
	countOf("store_repaired_items_total", "Damaged items rewritten from the disk, or sent there.", func(s *store.Stats) uint64 { return s.Repaired }),
	countOf("store_repairs_lost_total", "Repairs that gave way to a newer write.", func(s *store.Stats) uint64 { return s.RepairsLost }),
	countOf("store_orphan_items_total", "Damaged items that were nobody's or had no copy.", func(s *store.Stats) uint64 { return s.Orphans }),
	countOf("store_damage_reports_total", "Reports of damage by clients.", func(s *store.Stats) uint64 { return s.DamageReports }),
	countOf("store_damage_reports_false_total", "Of them, those where nothing was found.", func(s *store.Stats) uint64 { return s.ReportsFalse }),
	countOf("store_damage_reports_dead_total", "Of them, those of an item that was whole and dead.", func(s *store.Stats) uint64 { return s.ReportsDead }),
	countOf("store_damage_reports_dropped_total", "Of them, those beyond the bound.", func(s *store.Stats) uint64 { return s.ReportsDropped }),
	countOf("store_corrupt_records_total", "Records on the disk that did not verify.", func(s *store.Stats) uint64 { return s.Corrupt }),

	countOf("store_fill_dropped_keys_total", "Keys that the fill after a start left out for newer writes.", func(s *store.Stats) uint64 { return s.FillDropped }),
	gaugeOf("store_disk_free_bytes", "Free disk space; 0 if unknown.", func(s *store.Stats) uint64 { return s.DiskFree }),
	flagOf("store_puts_refused", "1 while puts are refused for want of disk space.", func(s *store.Stats) bool { return s.PutsRefused }),

	gaugeOf("pebble_disk_bytes", "All files of Pebble, the base: the log stands beside them.", func(s *store.Stats) uint64 { return s.Pebble.DiskBytes }),
	gaugeOf("pebble_l0_tables", "Tables in level 0.", func(s *store.Stats) int64 { return s.Pebble.L0Files }),
	countOf("pebble_compactions_total", "Compactions.", func(s *store.Stats) int64 { return s.Pebble.Compactions }),
	countOf("pebble_flushes_total", "Flushes.", func(s *store.Stats) int64 { return s.Pebble.Flushes }),
	countOf("pebble_cache_hits_total", "Blocks found in the block cache.", func(s *store.Stats) int64 { return s.Pebble.CacheHits }),
	countOf("pebble_cache_misses_total", "Blocks not found in the block cache.", func(s *store.Stats) int64 { return s.Pebble.CacheMisses }),
	countOf("pebble_background_errors_total", "Errors of background work.", func(s *store.Stats) uint64 { return s.Pebble.BackgroundErrors }),
	countOf("pebble_corruptions_total", "Damages met.", func(s *store.Stats) uint64 { return s.Pebble.Corruptions }),
	countOf("pebble_slow_disk_total", "Calls of the file system that took long.", func(s *store.Stats) uint64 { return s.Pebble.SlowDisk }),
	countOf("pebble_write_stalls_total", "Times when Pebble had its writers wait for compactions.", func(s *store.Stats) uint64 { return s.Pebble.WriteStalls }),
}

// secondsOf is a gauge of a duration.
func secondsOf(name, help string, value func(*store.Stats) time.Duration) numberOf[store.Stats] {
	return numberOf[store.Stats]{newDesc(name, help), false, func(st *store.Stats) float64 { return value(st).Seconds() }, nil}
}

// partOf is a part of the time that the newest checkpoint took.
func partOf(part string, value func(*store.CheckpointStats) time.Duration) numberOf[store.Stats] {
	return numberOf[store.Stats]{descPart, false, func(st *store.Stats) float64 { return value(&st.Log.Checkpoints).Seconds() }, []string{part}}
}

var descPart = newDesc("store_checkpoint_part_seconds", "Parts of the time of the newest checkpoint: reading the log, writing tables, waiting for its pace and for the base's compactions, and telling the base.", "part")

// logNumbers tell of the log of a store, and of the checkpoints that take it into the base. Behind,
// against the bound, says how near the log is to where puts are slowed down.
var logNumbers = []numberOf[store.Stats]{
	gaugeOf("store_log_bytes", "Segments of the log that are in use.", func(s *store.Stats) uint64 { return s.Log.Bytes }),
	gaugeOf("store_log_limit_bytes", "Their bound: log_bytes. When a quarter of it is left puts are slowed down.", func(s *store.Stats) uint64 { return s.Log.Limit }),
	gaugeOf("store_log_segments", "Segments of the log that are in use.", func(s *store.Stats) int { return s.Log.Segments }),
	gaugeOf("store_log_behind_bytes", "The part of the log, at most, that the base does not have: what a start after a crash reads.", func(s *store.Stats) uint64 { return s.Log.Behind }),
	gaugeOf("store_log_values_bytes", "Values in tables of their own that the base does not have yet. They count for the bound like bytes of the log.", func(s *store.Stats) uint64 { return s.Log.Values }),
	countOf("store_log_written_bytes_total", "Bytes written to the log, without those that fill blocks up.", func(s *store.Stats) uint64 { return s.Log.Written }),
	countOf("store_log_padding_bytes_total", "Bytes that fill blocks and segments of the log up.", func(s *store.Stats) uint64 { return s.Log.Padding }),
	countOf("store_log_frames_total", "Frames of the log, each written and made durable as a whole.", func(s *store.Stats) uint64 { return s.Log.Frames }),
	countOf("store_log_records_total", "Records written to the log.", func(s *store.Stats) uint64 { return s.Log.Records }),
	countOf("store_log_reads_total", "Reads of one key that a record of the log answered.", func(s *store.Stats) uint64 { return s.Log.Reads }),
	gaugeOf("store_dirty_writes", "Writes that the base does not have yet.", func(s *store.Stats) int { return s.Log.DirtyWrites }),
	gaugeOf("store_dirty_bytes", "Memory of their keys, beside the memory limit.", func(s *store.Stats) int64 { return s.Log.DirtyBytes }),
	gaugeOf("store_put_rate_bytes", "Bytes a second that puts are slowed down to; 0: they are not.", func(s *store.Stats) uint64 { return s.Log.PutRate }),

	countOf("store_checkpoints_total", "Checkpoints: ranges of the log that the base has taken in.", func(s *store.Stats) uint64 { return s.Log.Checkpoints.Done }),
	countOf("store_checkpoints_failed_total", "Checkpoints that came to nothing, and are tried again.", func(s *store.Stats) uint64 { return s.Log.Checkpoints.Failed }),
	countOf("store_checkpoint_log_bytes_total", "Bytes of the log that checkpoints have taken in.", func(s *store.Stats) uint64 { return s.Log.Checkpoints.BytesIn }),
	countOf("store_checkpoint_table_bytes_total", "Bytes of tables that checkpoints have written.", func(s *store.Stats) uint64 { return s.Log.Checkpoints.BytesOut }),
	countOf("store_checkpoint_records_total", "Records of the log that checkpoints have taken in.", func(s *store.Stats) uint64 { return s.Log.Checkpoints.Records }),
	secondsOf("store_checkpoint_seconds", "Time that the newest checkpoint took.", func(s *store.Stats) time.Duration { return s.Log.Checkpoints.Took }),
	partOf("read", func(c *store.CheckpointStats) time.Duration { return c.Read }),
	partOf("write", func(c *store.CheckpointStats) time.Duration { return c.Wrote }),
	partOf("wait", func(c *store.CheckpointStats) time.Duration { return c.Waited }),
	partOf("ingest", func(c *store.CheckpointStats) time.Duration { return c.Ingested }),
	secondsOf("store_checkpoint_age_seconds", "Time since the newest checkpoint ended, or since the start before the first; it grows while nothing is written.", func(s *store.Stats) time.Duration { return s.Log.Checkpoints.Since }),
}

// The events that are kept for watches.
var watchNumbers = []numberOf[store.WatchStats]{
	gaugeOf("watch_bytes", "Memory of the events that are kept.", func(s *store.WatchStats) int { return s.Bytes }),
	gaugeOf("watch_events", "Events that are kept.", func(s *store.WatchStats) int { return s.Events }),
	gaugeOf("watch_prefixes", "Prefixes that somebody waits for.", func(s *store.WatchStats) int { return s.Waiting }),
	countOf("watch_noted_total", "Events kept since the start.", func(s *store.WatchStats) uint64 { return s.Noted }),
	countOf("watch_told_total", "Events given out, once for each who asked.", func(s *store.WatchStats) uint64 { return s.Told }),
	countOf("watch_skipped_total", "Answers that had to say that events were skipped.", func(s *store.WatchStats) uint64 { return s.Skipped }),
	countOf("watch_asked_total", "How often somebody has asked for events, or told that somebody watches at another replica.", func(s *store.WatchStats) uint64 { return s.Asked }),
}

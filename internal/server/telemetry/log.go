package telemetry

import (
	"time"

	"github.com/rdmakv/rdmakv/store"
)

// What metrics tell about the log of a store, and about the checkpoints that take it into the
// base. Behind, against the bound, says how near the log is to where puts are slowed down.

// secondsOf is a gauge of a duration.
func secondsOf(name, help string, value func(*store.Stats) time.Duration) numberOf[store.Stats] {
	return numberOf[store.Stats]{newDesc(name, help), false, func(st *store.Stats) float64 { return value(st).Seconds() }, nil}
}

// partOf is a part of the time that the newest checkpoint took.
func partOf(part string, value func(*store.CheckpointStats) time.Duration) numberOf[store.Stats] {
	return numberOf[store.Stats]{descPart, false, func(st *store.Stats) float64 { return value(&st.Log.Checkpoints).Seconds() }, []string{part}}
}

var descPart = newDesc("store_checkpoint_part_seconds", "Parts of the time of the newest checkpoint: reading the log, writing tables, waiting for its pace and for the base's compactions, and telling the base.", "part")

var logNumbers = []numberOf[store.Stats]{
	gaugeOf("store_log_bytes", "Segments of the log that are in use.", func(s *store.Stats) uint64 { return s.Log.Bytes }),
	gaugeOf("store_log_limit_bytes", "Their bound: log_bytes. When a quarter of it is left puts are slowed down.", func(s *store.Stats) uint64 { return s.Log.Limit }),
	gaugeOf("store_log_segments", "Segments of the log that are in use.", func(s *store.Stats) int { return s.Log.Segments }),
	gaugeOf("store_log_behind_bytes", "The part of the log, at most, that the base does not have: what a start after a crash reads.", func(s *store.Stats) uint64 { return s.Log.Behind }),
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

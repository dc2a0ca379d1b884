package store

import "time"

// LogStats is the log of a durable store in numbers, with the checkpoints that take it into the
// base. All zero of a cache. Counters run from Open.
type LogStats struct {
	// Bytes is what the log has on the disk in segments that are in use, and Limit its bound
	// (Config.LogBytes). When less than a quarter of it is left puts are slowed down; when
	// nothing is, they wait for a checkpoint.
	Bytes    uint64 `json:"bytes"`
	Limit    uint64 `json:"limit"`
	Segments int    `json:"segments"` // in use
	// Behind is how many bytes of the log, at most, the base does not have: what a start after
	// a crash reads.
	Behind uint64 `json:"behind"`
	// Values is how many bytes the base does not have yet of values that stand in tables of their own. They
	// count for the bound as bytes of the log do, and a start does not read them.
	Values  uint64 `json:"values"`
	Written uint64 `json:"written"` // bytes, without those that fill blocks up
	Padding uint64 `json:"padding"` // bytes that fill blocks and segments up
	Frames  uint64 `json:"frames"`  // each is written and made durable as a whole
	Records uint64 `json:"records"`

	// DirtyWrites are writes of a key that the base does not have yet: a key that was written
	// twice since counts twice. DirtyBytes is the memory that their keys take, beside
	// MemoryLimit.
	DirtyWrites int   `json:"dirty_writes"`
	DirtyBytes  int64 `json:"dirty_bytes"`
	// PutRate is how many bytes a second puts are slowed down to now; 0: they are not.
	PutRate uint64 `json:"put_rate"`
	// Reads are reads of one key that a record of the log answered: gets, and what conditions,
	// increments and repairs read. Scans and the fill are not counted.
	Reads uint64 `json:"reads"`

	Checkpoints CheckpointStats `json:"checkpoints"`
}

// CheckpointStats are the checkpoints of a store in numbers. A checkpoint is one range of the log
// that one ingest of tables takes into the base; much that is dirty takes several.
type CheckpointStats struct {
	Done     uint64 `json:"done"`
	Failed   uint64 `json:"failed"`    // tried again after a while
	Trouble  string `json:"trouble"`   // why the newest one failed; empty: it did not
	BytesIn  uint64 `json:"bytes_in"`  // of the log that they have taken in
	BytesOut uint64 `json:"bytes_out"` // of tables that they have written
	Records  uint64 `json:"records"`   // of the log that they have taken in

	// Of the newest that is done, zero before the first: how long it took, and of that how long it
	// read the log, made tables, waited (so that the disk is shared with the log, and for the
	// base's compactions), and had the base take the tables.
	Took     time.Duration `json:"took_ns"`
	Read     time.Duration `json:"read_ns"`
	Wrote    time.Duration `json:"wrote_ns"`
	Waited   time.Duration `json:"waited_ns"`
	Ingested time.Duration `json:"ingested_ns"`
	// Since is the time since that one was done, or since Open before the first. It grows while
	// nothing is dirty.
	Since time.Duration `json:"since_ns"`
}

// logStats reads the numbers of the log.
func (s *Store) logStats() LogStats {
	if s.journal == nil {
		return LogStats{}
	}
	l, k := s.journal.Stats(), s.ckpt.Stats()
	last := s.opened
	if !k.Last.IsZero() {
		last = k.Last
	}
	return LogStats{
		Bytes: uint64(l.Bytes), Limit: uint64(s.cfg.LogBytes), Segments: l.Segments, Behind: uint64(k.Behind), Values: uint64(k.Values),
		Written: l.Written, Padding: l.Padding, Frames: l.Frames, Records: l.Records,
		DirtyWrites: k.DirtyWrites, DirtyBytes: k.DirtyBytes,
		PutRate: s.gate.PutRate(), Reads: s.counts.FromLog.Load(),
		Checkpoints: CheckpointStats{
			Done: k.Checkpoints, Failed: k.Failed, BytesIn: k.BytesIn, BytesOut: k.BytesOut, Records: k.Records,
			Took: k.Took, Read: k.Read, Wrote: k.Written, Waited: k.Waited, Ingested: k.Ingested,
			Since: time.Since(last), Trouble: k.Trouble,
		},
	}
}

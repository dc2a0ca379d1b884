package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/test/crashfs"
)

// TestLogStats: the numbers of the log and of checkpoints say what has happened.
func TestLogStats(t *testing.T) {
	fs := crashfs.New()
	c := testConfig(fs)
	c.noKeeper, c.checkpoints = true, time.Hour
	n := open(t, c)
	for i := range 100 {
		n.put(i%4, fmt.Sprint("key-", i), pattern(1000, "v"))
	}
	st := n.Stats().Log
	if st.Written < 100_000 || st.Behind < st.Written || st.Bytes < st.Behind || st.Limit != uint64(c.LogBytes) ||
		st.Segments == 0 || st.Frames == 0 || st.Records < 100 || st.PutRate != 0 {
		t.Errorf("behind 100 puts: %+v", st)
	}
	if st.DirtyWrites != 100 || st.DirtyBytes <= 0 || st.Checkpoints.Done != 0 || st.Checkpoints.Since <= 0 {
		t.Errorf("before a checkpoint: %+v", st)
	}
	crashed := fs.CrashClone(vfs.CrashCloneCfg{})
	n.checkpoint()
	k := n.Stats().Log.Checkpoints
	if k.Done == 0 || k.Failed != 0 || k.BytesIn < 100_000 || k.BytesOut == 0 || k.Records < 100 || k.Took <= 0 {
		t.Errorf("behind a checkpoint: %+v", k)
	}
	if k.Read <= 0 || k.Wrote <= 0 || k.Ingested <= 0 || k.Read+k.Wrote+k.Waited+k.Ingested > 2*k.Took {
		t.Errorf("what a checkpoint did in its time: %+v", k)
	}
	// A log that is idle for a second gets a frame without a record: two blocks at most.
	if st := n.Stats().Log; st.DirtyWrites != 0 || st.Behind > 8192 || k.Since > st.Checkpoints.Since || n.Stats().Uptime < k.Since {
		t.Errorf("behind a checkpoint: %+v", st)
	}

	// Memory is empty; the log has all keys.
	c = testConfig(crashed)
	c.noKeeper, c.checkpoints, c.PredecessorGone, c.holdFill = true, time.Hour, true, make(chan struct{})
	defer close(c.holdFill)
	n = open(t, c)
	n.want(0, "key-0", pattern(1000, "v"))
	if _, err := n.Get(t.Context(), 1, []byte("key-0"), nil); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if st := n.Stats(); st.Log.Reads != 1 || st.Log.DirtyWrites != 100 || st.FromDisk != 2 {
		t.Errorf("a get out of the log, and one of nothing: %d and %d from the disk, %+v", st.Log.Reads, st.FromDisk, st.Log)
	}
}

// TestLogStatsOfValues: values that have tables of their own are counted until the base has them.
func TestLogStatsOfValues(t *testing.T) {
	c := testConfig(memFS())
	c.noKeeper, c.checkpoints, c.bytesFrom = true, time.Hour, 4096
	n := open(t, c)
	n.put(0, "small", "v")
	if st := n.Stats().Log; st.Values != 0 {
		t.Errorf("no value has a table: %+v", st)
	}
	for i := range 3 {
		n.put(i, "large", pattern(5000, "v"))
	}
	if st := n.Stats().Log; st.Values < 15_000 || st.Written > 2000 {
		t.Errorf("three values of 5,000 bytes are in tables: %+v", st)
	}
	n.checkpoint()
	if st := n.Stats().Log; st.Values != 0 || st.Checkpoints.Trouble != "" {
		t.Errorf("the base has them: %+v", st)
	}
}

// TestPutRateIsTold: what puts are slowed down to is told while little of the log is left.
func TestPutRateIsTold(t *testing.T) {
	c := testConfig(memFS())
	c.Sync, c.LogBytes, c.bytesFrom = Off, MinLogBytes, 0 // values in the log
	n := open(t, c)
	n.lookedForParts()
	n.ckpt.Leaving.Lock() // no checkpoint comes to its end
	last := uint64(0)
	end := time.Now().Add(testPatience)
	for i := 0; ; i++ {
		err := n.Submit(&Write{Op: Op{Shard: uint16(i % 4), Key: fmt.Append(nil, i%2000), Value: make([]byte, 16<<10)}, Done: func(*Write) {}})
		if st := n.Stats().Log; st.PutRate != 0 {
			last = st.PutRate
			// The rate was read behind the bytes, and writes are under way: the bytes of now are no
			// fewer than those that it was made of, because no checkpoint gives any back.
			if now := n.Stats().Log; now.Limit-now.Bytes > now.Limit/4 {
				t.Errorf("puts are slowed down while %d of %d bytes are in use", now.Bytes, now.Limit)
			}
			break
		} else if time.Now().After(end) || err != nil && !errors.Is(err, ErrOverloaded) {
			t.Fatalf("puts are never slowed down: %v, %+v", err, st)
		}
		if err != nil {
			time.Sleep(100 * time.Microsecond) // the disk is behind
		}
	}
	n.ckpt.Leaving.Unlock()
	n.checkpoint()
	if now := n.Stats().Log.PutRate; last == 0 || now != 0 {
		t.Errorf("slowed down to %d bytes a second, and to %d behind a checkpoint", last, now)
	}
}

// TestCacheHasNoLog: all numbers of the log are zero.
func TestCacheHasNoLog(t *testing.T) {
	c := testConfig(nil)
	c.Mode, c.Dir, c.PredecessorGone = Cache, "", true
	n := open(t, c)
	n.put(0, "k", "v")
	if st := n.Stats().Log; st != (LogStats{}) {
		t.Errorf("%+v", st)
	}
}

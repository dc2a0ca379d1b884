package store

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/upkeep"
)

// BenchmarkOps compares what the operations cost: one goroutine keeps 256 of
// them in flight, so that batches are large and the CPU is what counts.
//
//	put        16 + 100 bytes
//	put-id     the same with a request id, so with a record of its result
//	put-ttl    the same with a TTL, so listed under its second
//	put-if     the same if the key exists
//	increment  of 1024 counters
//	touch      of the keys put before
//	batch      10 puts in one; ns/op is of the batch
func BenchmarkOps(b *testing.B) {
	for _, policy := range []SyncPolicy{Off, Always} {
		for _, op := range []string{"put", "put-id", "put-ttl", "put-if", "increment", "touch", "batch"} {
			b.Run(fmt.Sprintf("sync=%v/%s", policy, op), func(b *testing.B) { benchOps(b, policy, op) })
		}
	}
}

func benchOps(b *testing.B, policy SyncPolicy, op string) {
	const flying, keys = 256, 1 << 14
	c := diskConfig(b)
	c.Sync = policy
	n := open(b, c)
	n.fill()
	n.do(Write{Op: Op{Key: []byte("warm"), Value: make([]byte, 100), TTL: time.Hour}})
	free := make(chan *Write, flying)
	key := func(w *Write, i int) {
		w.Shard = uint16(i % 32)
		w.Key = binary.BigEndian.AppendUint64(append(w.Key[:0], "benchkey"...), uint64(i%keys))
	}
	run := func(count int, prepare func(w *Write, i int)) {
		for i := range count {
			w := <-free
			prepare(w, i)
			if err := n.Submit(w); err != nil {
				b.Fatal(err)
			}
		}
	}
	value := make([]byte, 100)
	for i := range flying {
		free <- &Write{Op: Op{ID: RequestID{Client: [16]byte{1}, Slot: uint16(i)}}, Done: func(w *Write) { free <- w }}
	}
	run(keys, func(w *Write, i int) { w.Value = value; key(w, i) })
	prepare := map[string]func(w *Write, i int){
		"put":       func(w *Write, i int) { key(w, i) },
		"put-id":    func(w *Write, i int) { key(w, i); w.ID.Seq++ },
		"put-ttl":   func(w *Write, i int) { key(w, i); w.TTL = time.Hour },
		"put-if":    func(w *Write, i int) { key(w, i); w.If = CondExists },
		"increment": func(w *Write, i int) { w.Kind, w.Delta = OpIncrement, 1; key(w, i%1024); w.Key[0] = 'c' },
		"touch":     func(w *Write, i int) { w.Kind, w.TTL = OpTouch, time.Hour; key(w, i) },
		"batch": func(w *Write, i int) {
			w.Kind, w.Key, w.Value, w.Shard = OpBatch, nil, nil, uint16(i%32)
			if w.Parts == nil {
				w.Parts = make([]Part, 10)
			}
			for j := range w.Parts {
				k := binary.BigEndian.AppendUint64(append(w.Parts[j].Key[:0], "batchkey"...), uint64(i*10+j)%keys)
				w.Parts[j] = Part{Key: k, Value: value}
			}
		},
	}[op]
	b.ReportAllocs()
	cpu := cpuTime(b)
	b.ResetTimer()
	run(b.N, prepare)
	for range flying {
		<-free
	}
	b.StopTimer()
	b.ReportMetric(float64((cpuTime(b)-cpu).Nanoseconds())/float64(b.N), "cpu-ns/op")
}

// BenchmarkLoadResults is what a start does with the results of requests.
func BenchmarkLoadResults(b *testing.B) {
	const results = 100_000
	c := diskConfig(b)
	c.Sync = Off
	n := open(b, c)
	done := make(chan struct{}, results)
	for i := range results {
		id := RequestID{Client: [16]byte{byte(i), byte(i >> 8), byte(i >> 16)}, Slot: uint16(i % 64), Seq: 1}
		w := &Write{Op: Op{Shard: uint16(i % 32), Key: fmt.Appendf(nil, "%d", i%1000), ID: id}, Done: func(*Write) { done <- struct{}{} }}
		for n.Submit(w) != nil {
			<-done
		}
	}
	<-n.gateIdle()
	if err := n.disk.ForTests().DB().Flush(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		n.dedup = dedup.New(dedup.Limit)
		if err := upkeep.LoadResults(n.disk, len(n.shards), n.dedup); err != nil {
			b.Fatal(err)
		}
		if n.dedup.Count() != results {
			b.Fatalf("%d results", n.dedup.Count())
		}
	}
	b.ReportMetric(float64(results)*float64(b.N)/b.Elapsed().Seconds(), "results/s")
}

// TestSubmitAllocates: the store allocates nothing for a write of one key. What is
// left are Pebble's logs and memtables, far less than one allocation for each write.
func TestSubmitAllocates(t *testing.T) {
	if underRace {
		t.Skip("the race detector allocates")
	}
	c := testConfig(memFS())
	c.Sync, c.noKeeper = Off, true
	n := open(t, c)
	n.fill()
	done := make(chan struct{}, 1)
	w := &Write{Op: Op{Key: []byte("key"), Value: []byte("a value")}, Done: func(*Write) { done <- struct{}{} }}
	for _, op := range []struct {
		kind  Kind
		id    uint64
		limit float64
	}{{OpPut, 0, 1}, {OpPut, 1, 1}, {OpIncrement, 0, 1}, {OpDelete, 0, 1}} {
		w.Kind, w.ID = op.kind, RequestID{Client: [16]byte{1}, Seq: op.id}
		if op.kind == OpIncrement {
			w.Key = []byte("number")
		}
		got := testing.AllocsPerRun(2000, func() {
			if err := n.Submit(w); err != nil {
				t.Fatal(err)
			}
			if <-done; w.ID.Seq != 0 {
				w.ID.Seq++
			}
		})
		if t.Logf("%v: %.2f allocations", op.kind, got); got > op.limit {
			t.Errorf("%v (request %d): %.2f allocations, at most %v", op.kind, op.id, got, op.limit)
		}
	}
}

package store

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"
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
	n.do(Write{Key: []byte("warm"), Value: make([]byte, 100), TTL: time.Hour})
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
		free <- &Write{ID: RequestID{Client: [16]byte{1}, Slot: uint16(i)}, Done: func(w *Write) { free <- w }}
	}
	run(keys, func(w *Write, i int) { w.Value = value; key(w, i) })
	prepare := map[string]func(w *Write, i int){
		"put":       func(w *Write, i int) { key(w, i) },
		"put-id":    func(w *Write, i int) { key(w, i); w.ID.Seq++ },
		"put-ttl":   func(w *Write, i int) { key(w, i); w.TTL = time.Hour },
		"put-if":    func(w *Write, i int) { key(w, i); w.If = CondExists },
		"increment": func(w *Write, i int) { w.Op, w.Delta = OpIncrement, 1; key(w, i%1024); w.Key[0] = 'c' },
		"touch":     func(w *Write, i int) { w.Op, w.TTL = OpTouch, time.Hour; key(w, i) },
		"batch": func(w *Write, i int) {
			w.Op, w.Key, w.Value, w.Shard = OpBatch, nil, nil, uint16(i%32)
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
		w := &Write{Shard: uint16(i % 32), Key: fmt.Appendf(nil, "%d", i%1000), ID: id, Done: func(*Write) { done <- struct{}{} }}
		for n.Submit(w) != nil {
			<-done
		}
	}
	<-n.gateIdle()
	if err := n.db.Flush(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		n.dedup = newDedup(dedupLimit)
		if err := n.loadDedup(); err != nil {
			b.Fatal(err)
		}
		if n.dedup.count() != results {
			b.Fatalf("%d results", n.dedup.count())
		}
	}
	b.ReportMetric(float64(results)*float64(b.N)/b.Elapsed().Seconds(), "results/s")
}

package log_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/log/logtest"
)

// small is a log of small segments on a disk in memory.
func small(d log.Dir) log.Config {
	return log.Config{Dir: d, Store: [16]byte{1}, Create: true, SegmentSize: 1 << 20, MaxFrame: 128 << 10}
}

// open opens a log, replays it and starts a life.
func open(t *testing.T, c log.Config) (*log.Log, []log.Record) {
	t.Helper()
	l, err := log.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	var got []log.Record
	err = l.Replay(func(r *log.Record) error {
		c := *r
		c.Body = bytes.Clone(r.Body)
		got = append(got, c)
		return nil
	})
	if err == nil {
		err = l.Start(l.Found().Epoch + 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(false); err != nil && !errors.Is(err, log.ErrFailed) {
			t.Error(err)
		}
	})
	return l, got
}

func write(stream uint64, format string, args ...any) log.Record {
	return log.Record{Kind: log.Write, Stream: stream, Body: fmt.Appendf(nil, format, args...)}
}

// policies are the policies, each with direct access and without.
func policies(t *testing.T, f func(t *testing.T, c log.Config, d *logtest.Disk)) {
	for _, direct := range []bool{true, false} {
		for _, s := range []log.Sync{log.Always, log.Interval, log.Off} {
			t.Run(fmt.Sprintf("%v,direct=%v", s, direct), func(t *testing.T) {
				d := logtest.New(logtest.Options{NoDirect: !direct})
				c := small(d)
				c.Sync = s
				f(t, c, d)
			})
		}
	}
}

// TestReopen: what was appended is there in each later life, over many segments.
func TestReopen(t *testing.T) {
	policies(t, func(t *testing.T, c log.Config, d *logtest.Disk) {
		var want []string
		for life := range 4 {
			l, got := open(t, c)
			if len(got) != len(want) {
				t.Fatalf("life %d: %d records, want %d", life, len(got), len(want))
			}
			for i, r := range got {
				if string(r.Body) != want[i] {
					t.Fatalf("life %d: record %d is %q, want %q", life, i, r.Body, want[i])
				}
				if again, err := l.ReadAt(r.Position); err != nil || string(again.Body) != want[i] {
					t.Fatalf("life %d: ReadAt(%v) = %q, %v", life, r.Position, again.Body, err)
				}
			}
			for i := range 25 {
				body := fmt.Sprintf("%d/%d %s", life, i, bytes.Repeat([]byte("x"), i*5000))
				at, err := l.Append(write(1, "%s", body))
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, body)
				if r, err := l.ReadAt(at); err != nil || string(r.Body) != body {
					t.Fatalf("ReadAt(%v): %v", at, err)
				}
			}
			n := 0
			if _, err := l.Scan(0, l.Stats().End, func(r *log.Record) error {
				if string(r.Body) != want[n] {
					t.Errorf("scan: record %d is %.20q, want %.20q", n, r.Body, want[n])
				}
				n++
				return nil
			}); err != nil || n != len(want) {
				t.Fatalf("scan: %d of %d records, %v", n, len(want), err)
			}
			if err := l.Close(life%2 == 0); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// reserve waits for room.
func reserve(t *testing.T, l *log.Log, n int64) {
	t.Helper()
	for {
		room, more := l.Room(log.Puts)
		if err := l.Reserve(n, log.Puts); err == nil {
			return
		} else if !errors.Is(err, log.ErrFull) {
			t.Fatalf("room %d, reserve %d: %v", room, n, err)
		}
		<-more
	}
}

// TestRetire: segments that nobody needs are given back and used again, facts stay.
func TestRetire(t *testing.T) {
	policies(t, func(t *testing.T, c log.Config, d *logtest.Disk) {
		l, _ := open(t, c)
		if _, err := l.Append(log.Record{Kind: log.Fact, Stream: 7, Name: 3, Body: []byte("voted")}); err != nil {
			t.Fatal(err)
		}
		body := bytes.Repeat([]byte("y"), 100<<10)
		for i := range 100 {
			at, err := l.Append(log.Record{Kind: log.Write, Stream: 1, Body: body})
			if err != nil {
				t.Fatal(err)
			}
			if i%10 == 9 {
				l.Release(1, at)
			}
			reserve(t, l, l.Cost(len(body)))
			l.Unreserve(l.Cost(len(body)))
		}
		for deadline := time.Now().Add(10 * time.Second); l.Stats().Recycled == 0 || l.Stats().Carried == 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%+v", l.Stats())
			}
		}
		if err := l.Close(true); err != nil {
			t.Fatal(err)
		}
		s := l.Stats()
		c.From = s.End
		l, _ = open(t, c)
		if b, ok := l.Fact(7, 3); string(b) != "voted" {
			t.Fatalf("the fact is %q, %v", b, ok)
		}
	})
}

// TestWriters: two writers alternate, and pass in the order of their frames.
func TestWriters(t *testing.T) {
	policies(t, func(t *testing.T, c log.Config, d *logtest.Disk) {
		l, _ := open(t, c)
		var order sync.Mutex // of sealing
		next, published := 0, 0
		var tasks sync.WaitGroup
		for range 4 {
			tasks.Add(1)
			go func() {
				defer tasks.Done()
				for range 200 {
					f := l.Begin()
					order.Lock()
					n := next
					next++
					if n%5 != 0 {
						b, err := f.Add(&log.Record{Kind: log.Write, Stream: 1, Index: uint64(n)}, 1000)
						if err != nil {
							t.Error(err)
						}
						copy(b, fmt.Sprint(n))
					}
					err := f.Seal()
					order.Unlock()
					if err == nil {
						err = f.Write()
					}
					if err == nil {
						err = f.Turn()
					}
					if err != nil {
						t.Error(err)
						return
					}
					if n != published {
						t.Errorf("frame %d passes behind %d", n, published)
					}
					published++
					f.Pass()
				}
			}()
		}
		tasks.Wait()
	})
}

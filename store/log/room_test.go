package log_test

import (
	"errors"
	"testing"

	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/log/logtest"
)

// TestShares: puts leave room for deletes, and deletes for facts; what is reserved can be
// sealed, whatever else is full.
func TestShares(t *testing.T) {
	policies(t, func(t *testing.T, c log.Config, _ *logtest.Disk) {
		l, _ := open(t, c)
		body := make([]byte, 60<<10)
		n := l.Cost(len(body))
		took := map[log.Use]int{}
		for _, use := range []log.Use{log.Puts, log.Deletes, log.Facts} {
			for {
				room, more := l.Room(use)
				err := l.Reserve(n, use)
				if errors.Is(err, log.ErrFull) {
					if l.Stats().Free < 3 {
						<-more // the maker is at work
						continue
					}
					select {
					case <-more: // it made a file behind Reserve
						continue
					default:
					}
					if room >= n {
						t.Fatalf("%v: full with room for %d", use, room)
					}
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				took[use]++
				// What was reserved for puts is written at once, the rest is held: deletes
				// that wait may not take what a fact needs.
				if use == log.Puts {
					if _, err := l.Append(log.Record{Kind: log.Write, Stream: 1, Body: body}); err != nil {
						t.Fatal(err)
					}
					l.Unreserve(n)
				}
			}
		}
		if took[log.Puts] < 50 || took[log.Deletes] < 5 || took[log.Facts] < 1 {
			t.Fatalf("puts, deletes and facts took %v", took)
		}
		for range took[log.Deletes] + took[log.Facts] {
			if _, err := l.Append(log.Record{Kind: log.Write, Stream: 1, Body: body}); err != nil {
				t.Fatal(err)
			}
			l.Unreserve(n)
		}
	})
}

// TestShortStarts: starts that are cut short at any call, again and again, leave no more on
// the disk than a log and its free files; the next start finds room.
func TestShortStarts(t *testing.T) {
	const room = 7 << 20 // six segments of 1 MiB, and LIFE
	for at := 1; at < 40; at += 3 {
		d := logtest.New(logtest.Options{Capacity: room})
		c := small(d)
		l, _ := open(t, c)
		if _, err := l.Append(write(1, "kept")); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(false); err != nil {
			t.Fatal(err)
		}
		for i := range 30 {
			d.CrashAt(at + i%5)
			l, err := log.Open(withDir(c, d))
			if err == nil {
				if err = l.Replay(nil); err == nil {
					err = l.Start(l.Found().Epoch + 1)
				}
				l.Close(false)
			}
			if err != nil && !d.Dead() {
				t.Fatalf("call %d, start %d: %v", at, i, err)
			}
			d = d.Crash(uint64(at*100 + i))
		}
		_, got := open(t, withDir(c, d))
		if len(got) != 1 || string(got[0].Body) != "kept" {
			t.Fatalf("call %d: %d records", at, len(got))
		}
	}
}

// withDir is a configuration with another directory.
func withDir(c log.Config, d log.Dir) log.Config {
	c.Dir = d
	return c
}

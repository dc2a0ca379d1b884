package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmakv/rdmakv/bench/compare/clients"
	"github.com/rdmakv/rdmakv/bench/compare/jobs"
	"github.com/rdmakv/rdmakv/bench/compare/report"
	"github.com/rdmakv/rdmakv/internal/load"
)

// LMDB is the peer of shared memory: a client that reads it copies values out of a
// map, as ours does, and calls no server. So it stands beside every get by shm.

// lmdbChoices is how many choices of keys a reader of LMDB has: at millions a second
// it goes through them once in a turn, so that its caches see what those of rdmakv see.
const lmdbChoices = 4 << 20

// options are those of package load for the keys of a data set, as one caller gets them.
func (d dataset) options(seed uint64) (load.Options, error) {
	l := jobs.Load{Records: d.records, Value: d.value, Op: "get", Choice: d.choice, Callers: 1, Duration: time.Second, Seed: seed}
	return l.Options(func(context.Context, int) (load.Store, error) { return nil, load.ErrUnsupported })
}

// An lmdbEnv is an environment that is filled.
type lmdbEnv struct {
	dir, choices string
}

// lmdb returns the program that reads LMDB, compiled once for a row.
func (r *rig) lmdb(ctx context.Context) (*clients.LMDB, error) {
	if r.reader == nil {
		l, err := clients.CompileLMDB(ctx, r.dir)
		if err != nil {
			return nil, err
		}
		r.reader = l
	}
	return r.reader, nil
}

// lmdbVersion is what LMDB calls itself, or why it is missing.
func lmdbVersion(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "kvc")
	if err != nil {
		return "missing: " + err.Error()
	}
	defer os.RemoveAll(dir)
	l, err := clients.CompileLMDB(ctx, dir)
	if err != nil {
		return "missing: " + err.Error()
	}
	text, err := l.Version(ctx)
	if err != nil {
		return "missing: " + err.Error()
	}
	return text
}

// environment returns LMDB's environment of a data set, in memory like the stores that it stands
// beside.
func (r *rig) environment(ctx context.Context, l *clients.LMDB, d dataset) (env lmdbEnv, err error) {
	name := fmt.Sprint(d)
	if env, ok := r.envs[name]; ok {
		return env, nil
	}
	o, err := d.options(r.o.seed)
	if err != nil {
		return env, err
	}
	dir, err := r.inMemory(2 * d.records * uint64(d.value+jobs.Keys().Size))
	if err != nil {
		return env, err
	}
	ctx, cancel := context.WithTimeout(ctx, fillLimit)
	defer cancel()
	if err := l.Load(ctx, dir, o); err != nil {
		return env, errors.Join(err, os.RemoveAll(dir))
	}
	choices, err := clients.WriteChoices(r.dir, o, lmdbChoices)
	if err != nil {
		return env, errors.Join(err, os.RemoveAll(dir))
	}
	env = lmdbEnv{dir, choices}
	r.envs[name] = env
	return env, nil
}

// shmDir is where Linux has a file system in memory.
const shmDir = "/dev/shm"

// inMemory makes a directory for so many bytes in a file system in memory, or where that has not
// the room, on disk, whose page cache is memory too.
func (r *rig) inMemory(bytes uint64) (string, error) {
	var fs unix.Statfs_t
	if unix.Statfs(shmDir, &fs) == nil && fs.Bavail*uint64(fs.Bsize) > bytes+64<<20 {
		if dir, err := os.MkdirTemp(shmDir, "kvc"); err == nil {
			r.remove = append(r.remove, dir)
			return dir, nil
		}
	}
	return os.MkdirTemp(r.dir, "lmdb-")
}

// lmdb is LMDB read by a process of its own, in calls of so many keys.
func lmdb(name string, d dataset, batch int) contender {
	how := "lmdb.c: MDB_RDONLY|MDB_NOTLS|MDB_NORDAHEAD in a process of its own, data in memory (tmpfs, or the page cache where that has no room), map in huge pages where the kernel can, filled in the order of keys (MDB_APPEND), every record read once before; "
	if batch > 1 {
		how += fmt.Sprintf("a reader's transaction renewed for every %d gets, which are a loop", batch)
	} else {
		how += "a reader's transaction renewed for every get, so that it sees the newest value"
	}
	return contender{
		Contender: report.Contender{Name: name, Kind: report.Peer, System: "lmdb", How: how}, group: "lmdb",
		measure: func(ctx context.Context, r *rig) (report.Sample, error) {
			l, err := r.lmdb(ctx)
			if err != nil {
				return report.Sample{}, err
			}
			env, err := r.environment(ctx, l, d)
			if err != nil {
				return report.Sample{}, err
			}
			return l.Read(ctx, clients.Reading{
				Dir: env.dir, Choices: env.choices, Records: d.records, Keys: jobs.Keys(), Value: d.value, Batch: max(1, batch),
				Warm: warm(r.o), Duration: r.o.slice,
			})
		},
	}
}

// lmdbPerKey is what LMDB's file takes for a key.
func lmdbPerKey(d dataset) contender {
	return contender{
		Contender: report.Contender{Name: "LMDB", Kind: report.Peer, System: "lmdb", How: "pages of data.mdb, filled in the order of keys: in random order it is larger"}, group: "lmdb",
		measure: func(ctx context.Context, r *rig) (s report.Sample, err error) {
			l, err := r.lmdb(ctx)
			if err != nil {
				return s, err
			}
			env, err := r.environment(ctx, l, d)
			if err != nil {
				return s, err
			}
			bytes, err := clients.LMDBBytes(env.dir)
			s.Value = float64(bytes) / float64(d.records)
			s.BytesPerKey = s.Value - float64(jobs.Keys().Size+d.value)
			return s, err
		},
	}
}

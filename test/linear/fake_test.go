package linear

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// A fake is a store in memory, behind one lock, that is right unless it was told
// to make one mistake now and then.
type fake struct {
	mistake string

	mu      sync.Mutex
	rng     *rand.Rand
	version uint64
	m       map[string]*fakeItem
	made    int // mistakes
}

type fakeItem struct {
	present bool
	val     Value
	version uint64
	expiry  time.Time
	old     *fakeItem // what stood there before
}

func newFake(seed uint64, mistake string) *fake {
	return &fake{mistake: mistake, rng: rand.New(rand.NewPCG(seed, 77)), m: map[string]*fakeItem{}}
}

// errs reports whether to make the mistake now.
func (f *fake) errs(mistake string) bool {
	if f.mistake != mistake || f.rng.IntN(40) != 0 {
		return false
	}
	f.made++
	return true
}

func (f *fake) item(key []byte) *fakeItem {
	it := f.m[string(key)]
	if it == nil {
		it = &fakeItem{}
	}
	late := time.Duration(0)
	if f.mistake == "late expiry" {
		late = 300 * time.Millisecond
	}
	if it.present && !it.expiry.IsZero() && time.Now().After(it.expiry.Add(late)) {
		if late > 0 {
			f.made++
		}
		it = &fakeItem{old: it}
		f.m[string(key)] = it
	}
	return it
}

func (f *fake) set(key []byte, it fakeItem) {
	f.version++
	it.version, it.old = f.version, f.item(key)
	it.old.old = nil
	f.m[string(key)] = &it
}

func (f *fake) Do(ctx context.Context, key []byte, in *Input, size int) (out Output, err error) {
	if strings.HasSuffix(f.mistake, "expiry") {
		time.Sleep(100 * time.Microsecond) // so that deadlines come
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	it := f.item(key)
	switch in.Op {
	case OpGet, OpPeek:
		return f.get(key, in), nil
	}
	if in.If != CondNone && !f.errs("condition ignored") {
		if in.If == CondAbsent && it.present || in.If == CondVersion && !(it.present && it.version == in.IfVersion) {
			return Output{Refused: true, Version: it.actual(), Absent: !it.present}, nil
		}
	}
	next := fakeItem{present: true}
	if in.TTL > 0 {
		next.expiry = time.Now().Add(in.TTL)
		if f.errs("early expiry") {
			next.expiry = time.Now().Add(in.TTL / 4)
		}
	}
	switch in.Op {
	case OpPut:
		next.val = in.Val
		if !f.errs("lost update") {
			f.set(key, next)
		}
	case OpDelete:
		out.Present = it.present
		if it.present {
			was := *it
			f.set(key, fakeItem{})
			if f.errs("resurrected delete") {
				time.AfterFunc(10*time.Millisecond, func() {
					f.mu.Lock()
					defer f.mu.Unlock()
					if !f.item(key).present {
						f.m[string(key)] = &was
					}
				})
			}
		}
	case OpIncrement:
		if it.present && !it.val.Num {
			return Output{NotNumber: true}, nil
		}
		next.val, next.expiry = Value{Num: true, N: it.val.N + in.Delta}, it.expiry
		out.Val = next.val
		if f.errs("double increment") {
			next.val.N += in.Delta
		}
		f.set(key, next)
	case OpTouch:
		out.Present = it.present
		if it.present {
			next.val = it.val
			f.set(key, next)
		}
	}
	out.Version = f.m[string(key)].orNone().version
	if in.Op == OpTouch || in.Op == OpDelete {
		out.Version = 0
	}
	if out.Version != 0 && f.errs("version used twice") {
		f.version = f.m[string(key)].version - 1
	}
	if f.rng.IntN(300) == 0 {
		out = Output{Unknown: true}
		if in.Op == OpIncrement && f.mistake == "retry applied twice" {
			f.made++
			next.val.N += in.Delta
			f.set(key, next)
		}
	}
	return out, nil
}

func (it *fakeItem) orNone() *fakeItem {
	if it == nil {
		return &fakeItem{}
	}
	return it
}

// actual is the version that a refusal tells.
func (it *fakeItem) actual() uint64 {
	if !it.present {
		return 0
	}
	return it.version
}

func (f *fake) get(key []byte, in *Input) Output {
	it := f.item(key)
	if it.old != nil && it.old.present && f.errs("stale read") {
		it = it.old
	}
	if it.present && f.errs("false miss") {
		it = &fakeItem{}
	}
	out := Output{Present: it.present, Version: it.version}
	if !it.present {
		out.Version = 0
	}
	if in.Op == OpGet && it.present {
		out.Val = it.val
		if in.How == "" {
			out.Version = 0
		}
	}
	return out
}

func (f *fake) Batch(ctx context.Context, keys [][]byte, in *Input, size int) (Output, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, p := range in.Parts {
		it := f.item(keys[p.Key])
		if p.If == CondAbsent && it.present || p.If == CondVersion && !(it.present && it.version == p.IfVersion) {
			return Output{Refused: true, Part: i, Version: it.actual(), Absent: !it.present}, nil
		}
	}
	split, half := f.errs("split batch"), f.errs("half a batch")
	for i, p := range in.Parts {
		if split && i == 1 {
			f.mu.Unlock()
			time.Sleep(5 * time.Millisecond)
			f.mu.Lock()
		}
		if half && i == 1 {
			break
		}
		f.set(keys[p.Key], fakeItem{present: !p.Delete, val: p.Val})
	}
	return Output{}, nil
}

func (f *fake) MultiGet(ctx context.Context, keys [][]byte) ([]*Output, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	outs := make([]*Output, len(keys))
	for i, key := range keys {
		out := f.get(key, &Input{Op: OpGet})
		outs[i] = &out
	}
	return outs, nil
}

func (f *fake) Scan(ctx context.Context, prefix []byte, values bool) (found []Found, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key := range f.m {
		it := f.item([]byte(key))
		if !bytes.HasPrefix([]byte(key), prefix) || !it.present || f.errs("scan leaves out") {
			continue
		}
		found = append(found, Found{Key: []byte(key), Val: it.val, Version: it.version})
		if !values {
			found[len(found)-1].Val = Value{}
		}
	}
	slices.SortFunc(found, func(a, b Found) int { return bytes.Compare(a.Key, b.Key) })
	return found, nil
}

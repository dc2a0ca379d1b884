package parts

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/layout"
)

var (
	// ErrNoUpload: a part or a head belongs to no upload that is under way.
	ErrNoUpload = errors.New("no such upload of a value in parts: it was given up, or has made no progress for too long")
	// ErrParts: a part or a head does not fit its upload.
	ErrParts = errors.New("not what the upload of the value in parts needs")
)

type state uint8

const (
	open  state = iota + 1 // there is no head
	found                  // by the look after a start; whether there is a head is not known
	live                   // the head is the value of its key
	dying                  // nobody gets the head any more
	going                  // the parts are being removed
)

// What is known of a part.
const (
	unknown   = iota
	expected  // its put was let pass, with the sum
	published // it is there, with the sum
)

// An upload is a value in parts, on its way or there.
type upload struct {
	layout.Shape       // Total is the most that the value may have
	whole        int64 // bytes that it has, once there is a head
	key          string
	shard        uint16
	keys         layout.PartKeys
	owner        uint32
	state        state
	ready        bool      // its record is published
	early        bool      // of an earlier life: parts may be there of which nothing is known
	heads        int       // let pass, and not published: the parts stay for them, …
	until        time.Time // … but no longer than up to here
	at           time.Time // of the last progress; of a dying one, when it lost its head
	sums         []uint64  // of the parts; nil: it has, or had, a head
	have         []uint8
	head         uint64 // XXH3-64 of the head, once there is one
}

// A Registry knows the uploads of one store. Safe for concurrent use.
type Registry struct {
	cfg   Config
	cache bool         // items may go without a write
	n     atomic.Int64 // uploads there are: most stores have none, and Note looks no further

	mu        sync.Mutex
	looked    bool // the look after the start is over
	forgets   int  // calls of Forget; looking is how many there had been when the newest look began
	looking   int
	uploads   map[layout.UploadID]*upload
	byKey     map[string][]layout.UploadID
	owners    map[uint32]*holding // of those who have any
	strays    []Stray
	overflow  bool // there are strays that are not noted
	collected int64
}

// A Stray is a key that has to go: a part of no upload, or a head whose parts are gone.
type Stray struct {
	Shard uint16
	Key   []byte
	// Version is the one to be deleted; 0: whichever there is.
	Version layout.Version
}

// New returns an empty registry. Of a cache nothing of an earlier life can be found, and its
// items may go without a write.
func New(c Config, cache bool) *Registry {
	c.Idle, c.Keep = cmp.Or(c.Idle, defaultIdle), cmp.Or(c.Keep, defaultKeep)
	c.Most, c.Open, c.OpenBytes = cmp.Or(c.Most, defaultMost), cmp.Or(c.Open, defaultOpen), cmp.Or(c.OpenBytes, defaultOpenBytes)
	c.Share = cmp.Or(c.Share, max(1, c.Most/4))
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Registry{
		cfg: c, cache: cache, looked: cache, uploads: make(map[layout.UploadID]*upload), byKey: make(map[string][]layout.UploadID), owners: make(map[uint32]*holding),
	}
}

// A holding is what one owner has: uploads and values, and of the uploads under way their number
// and the most bytes that they may come to.
type holding struct {
	all, open int
	openBytes int64
}

// add takes an upload in. Caller holds mu.
func (r *Registry) add(id layout.UploadID, u *upload) {
	r.uploads[id] = u
	r.byKey[u.key] = append(r.byKey[u.key], id)
	r.n.Add(1)
	r.hold(u, 1, 0)
	if u.state == open {
		r.hold(u, 0, 1)
	}
}

// hold counts an upload, and one under way, up or down. Caller holds mu.
func (r *Registry) hold(u *upload, all, open int) {
	h := r.owners[u.owner]
	if h == nil {
		h = new(holding)
		r.owners[u.owner] = h
	}
	h.all, h.open, h.openBytes = h.all+all, h.open+open, h.openBytes+int64(open)*u.Total
	if *h == (holding{}) {
		delete(r.owners, u.owner)
	}
}

// turn gives an upload another state. Caller holds mu.
func (r *Registry) turn(u *upload, to state) {
	if u.state == open && to != open {
		r.hold(u, 0, -1)
	} else if u.state != open && to == open {
		r.hold(u, 0, 1)
	}
	u.state = to
}

// bounded says which bound another upload would pass. The table and what is under way are shared by all
// tenants of a space: without a share of his own one of them could keep the others out, and with
// uploads that never end fill the disk. Caller holds mu.
func (r *Registry) bounded(owner uint32, total int64) error {
	var h holding
	if its := r.owners[owner]; its != nil {
		h = *its
	}
	switch {
	case h.open >= r.cfg.Open:
		return fmt.Errorf("%w: %d uploads of values in parts are under way", base.ErrOverloaded, r.cfg.Open)
	case h.open > 0 && h.openBytes+total > r.cfg.OpenBytes:
		return fmt.Errorf("%w: uploads of values in parts of %d bytes are under way, of %d", base.ErrOverloaded, h.openBytes, r.cfg.OpenBytes)
	case len(r.uploads) >= r.cfg.Most:
		return fmt.Errorf("%w: %d values in parts are there", base.ErrOverloaded, r.cfg.Most)
	case owner != 0 && h.all >= r.cfg.Share:
		return fmt.Errorf("%w: the tenant has %d values in parts, his share of this space", base.ErrOverloaded, r.cfg.Share)
	}
	return nil
}

// Begin lets the record of an upload pass, or says why not: ErrOverloaded, ErrParts. What is
// let pass again, with the same words, is a retry. key is that of the record, by keys.
func (r *Registry) Begin(shard uint16, id layout.UploadID, keys layout.PartKeys, of layout.Upload, owner uint32) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if u := r.uploads[id]; u != nil {
		if u.state != open && u.state != found || u.key != string(of.Key) || u.Shape != of.Shape {
			return fmt.Errorf("%w: the id is another upload's", ErrParts)
		}
		return nil
	}
	if !r.looked {
		return fmt.Errorf("%w: values in parts of before the start are still being looked for", base.ErrOverloaded)
	}
	if err := r.bounded(owner, of.Total); err != nil {
		return err
	}
	n := of.Parts()
	r.add(id, &upload{
		Shape: of.Shape, key: string(of.Key), shard: shard, keys: keys, owner: owner, state: open, at: r.cfg.Now(),
		sums: make([]uint64, n), have: make([]uint8, n),
	})
	return nil
}

// KeyOf returns the key that an upload's value belongs to. known: if there is no such upload,
// there is none for certain.
func (r *Registry) KeyOf(id layout.UploadID) (key []byte, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if u := r.uploads[id]; u != nil {
		return []byte(u.key), true
	}
	return nil, r.looked
}

// Part lets a part pass, or says why not: ErrNoUpload, ErrParts, ErrOverloaded. sum is its
// XXH3-64. key is the whole key of the part.
func (r *Registry) Part(key []byte, length int, sum uint64) error {
	id, n, ok := layout.ParsePartKey(key)
	if !ok || n == layout.UploadPart {
		return fmt.Errorf("%w: the key is that of no part", ErrParts)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	u, err := r.upload(id)
	switch {
	case err != nil:
		return err
	case u.state != open:
		return ErrNoUpload
	case !u.ready:
		return fmt.Errorf("%w: the record of the upload is not there", ErrParts)
	case n > u.Parts() || !bytes.Equal(u.keys.Key(n), key):
		return fmt.Errorf("%w: the key is that of no part of it", ErrParts)
	}
	if _, most := u.Part(n); length < 1 || length > most {
		return fmt.Errorf("%w: part %d of %d bytes, at most %d fit", ErrParts, n, length, most)
	}
	if u.have[n-1] != unknown && u.sums[n-1] != sum {
		return fmt.Errorf("%w: part %d was put with other bytes", ErrParts, n)
	}
	if u.have[n-1] == unknown {
		u.sums[n-1], u.have[n-1] = sum, expected
	}
	u.at = r.cfg.Now()
	return nil
}

// upload returns an upload whose state is known. Caller holds mu.
func (r *Registry) upload(id layout.UploadID) (*upload, error) {
	u := r.uploads[id]
	switch {
	case u == nil && !r.looked, u != nil && u.state == found:
		return nil, fmt.Errorf("%w: values in parts of before the start are still being looked for", base.ErrOverloaded)
	case u == nil || u.state == going:
		return nil, ErrNoUpload
	}
	return u, nil
}

// LenOf returns the length of the value in parts that is known to be there under a key.
func (r *Registry) LenOf(key []byte) (n int64, ok bool) {
	if r.n.Load() == 0 {
		return 0, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range r.byKey[string(key)] {
		if u := r.uploads[id]; u.state == live {
			return u.whole, true
		}
	}
	return 0, false
}

// A Part is one that a head names, as it is to be compared with what the store has.
type Part struct {
	Key    []byte
	Length int
	Sum    uint64
	Read   bool // its bytes are to be read: of the sum nothing is known
}

// Head lets the head of a value pass, if the store has the parts that it returns; or says
// why not: ErrNoUpload, ErrParts, ErrOverloaded. value is the head.
func (r *Registry) Head(key, value []byte) ([]Part, error) {
	h, err := layout.ParseHead(value)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrParts, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	u, err := r.upload(h.ID)
	switch {
	case err != nil:
		return nil, err
	case u.key != string(key) || u.PartLen != h.PartLen || h.Total > u.Total:
		return nil, fmt.Errorf("%w: the head is of another key or length than the upload", ErrParts)
	case u.state == live || u.state == dying:
		// Most likely a retry, which the store tells from a new write. Of a dying one the
		// parts are there, and stay while this is on its way.
		if u.head != xxh3.Hash(value) {
			return nil, fmt.Errorf("%w: the upload has another head", ErrParts)
		}
		r.awaits(u)
		return nil, nil
	}
	out := make([]Part, len(h.Sums))
	for i, sum := range h.Sums {
		_, length := h.Part(i + 1)
		out[i] = Part{Key: u.keys.Key(i + 1), Length: length, Sum: sum}
		switch {
		case u.have[i] != unknown && u.sums[i] != sum:
			return nil, fmt.Errorf("%w: part %d has another sum", ErrParts, i+1)
		case u.have[i] == published:
		case u.early:
			out[i].Read = true
		default:
			return nil, Missing(i + 1)
		}
	}
	r.awaits(u)
	return out, nil
}

// awaits notes that a head is on its way. Caller holds mu.
func (r *Registry) awaits(u *upload) {
	u.heads++
	u.at = r.cfg.Now()
	u.until = u.at.Add(headPatience)
}

// Refused says that a head that was let pass will not be published.
func (r *Registry) Refused(value []byte) {
	h, err := layout.ParseHead(value)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if u := r.uploads[h.ID]; u != nil {
		u.heads = max(0, u.heads-1)
	}
}

// GiveUp ends an upload that has no head. key is that of its record.
func (r *Registry) GiveUp(key []byte) error {
	id, n, ok := layout.ParsePartKey(key)
	if !ok || n != layout.UploadPart {
		return fmt.Errorf("%w: the key is that of no upload", ErrParts)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if u := r.uploads[id]; u != nil && u.state == open {
		r.turn(u, dying)
		u.at = r.cfg.Now().Add(-r.cfg.Keep) // nobody reads its parts
		u.heads = 0
	}
	return nil
}

// Stats reads the numbers.
func (r *Registry) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Stats{Collected: r.collected}
	for _, u := range r.uploads {
		switch u.state {
		case open, found:
			s.Uploads++
		case live:
			s.Values++
		default:
			s.Dying++
		}
		s.Parts += u.Parts()
		s.Bytes += cmp.Or(u.whole, u.Total)
	}
	return s
}

// Missing is the error of a head whose part is not there.
func Missing(number int) error { return fmt.Errorf("%w: part %d is not there", ErrParts, number) }

// MayLose says whether parts may go without a write: the store is a cache.
func (r *Registry) MayLose() bool { return r.cache }

// Any says whether there may be values in parts.
func (r *Registry) Any() bool {
	if r.n.Load() > 0 {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.looked
}

package handle

import (
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A value in parts comes as ordinary writes, which are checked here against what the store
// knows of the upload (store.Parts), before they are ordered:
//
//	put of number 0 of the parts' keys   begins: the record names the key and the lengths
//	put of number n                      a part, most often a large put
//	put of the head under the key        an ordinary put, with condition and time to live
//	delete of number 0                   gives up
//
// A get of a part is a get. Every other request that names such a key is refused.

// names says whether the session may name a key in this request. If not, it has been
// answered.
func names(r *op, key []byte) bool {
	if layout.IsPartKey(key) {
		return namesPart(r, key)
	}
	return r.mayName(key) && r.oursKey(key)
}

// reserved refuses a key that is kept for parts. It returns false.
func reserved(r *op) bool {
	r.Fail(wire.StatusBadRequest, "keys that begin like this are reserved for the parts of large values")
	return false
}

// namesPart is names for a key of parts. Whoever may name the key that a value belongs to may
// name its parts. The key is known of uploads that the store knows; the put that begins one
// tells it (mayPutPart).
func namesPart(r *op, key []byte) bool {
	id, n, ok := layout.ParsePartKey(key)
	begins := false
	switch r.Header.Type {
	case wire.TypeGet:
		ok = ok && n != layout.UploadPart
	case wire.TypePut:
		begins = n == layout.UploadPart
	case wire.TypePutLarge:
		ok = ok && n != layout.UploadPart
	case wire.TypeDelete:
		ok = ok && n == layout.UploadPart
	default:
		ok = false
	}
	if !ok || !r.Session.Parts {
		return reserved(r)
	}
	if !begins && len(r.Session.Login.KeyPrefix) > 0 {
		of, known := r.c.env.Store.Parts().KeyOf(id)
		switch {
		case of == nil && !known:
			r.refuse(fmt.Errorf("%w: values in parts of before the start are still being looked for", store.ErrOverloaded))
			return false
		case of == nil:
			r.refuse(store.ErrNotFound)
			return false
		case !r.mayName(of):
			return false
		}
	}
	return r.oursKey(key)
}

// mayPutPart lets the put of a part, or of the record of an upload, pass. sum is the XXH3-64 of
// the value. false: it was refused, and nothing is staged any more.
func mayPutPart(r *op, w *store.Write, sum uint64) bool {
	if w.If != store.CondNone || w.TTL != 0 {
		r.stage.Release()
		r.Fail(wire.StatusBadRequest, "conditions and times to live belong to the head of a value in parts")
		return false
	}
	id, n, _ := layout.ParsePartKey(w.Key)
	var err error
	if n == layout.UploadPart {
		var ok bool
		if ok, err = begins(r, w, id); !ok && err == nil {
			return false
		}
	} else {
		err = r.c.env.Store.Parts().Part(w.Key, len(w.Value), sum)
	}
	if err != nil {
		r.stage.Release()
		r.refuse(err)
		return false
	}
	return true
}

// begins lets the record of an upload pass. false without an error: it has been refused.
func begins(r *op, w *store.Write, id layout.UploadID) (bool, error) {
	env := r.c.env
	of, err := layout.ParseUpload(w.Value)
	if err != nil {
		return false, fmt.Errorf("%w: %w", store.ErrParts, err)
	}
	if !r.mayName(of.Key) {
		return false, nil
	}
	shard := cluster.ShardOf(of.Key, env.Shards)
	same := func(key []byte) bool { return cluster.ShardOf(key, env.Shards) == shard }
	if !same(w.Key) {
		return false, fmt.Errorf("%w: the parts are of another shard than the key", store.ErrParts)
	}
	keys, ok := layout.NewPartKeys(id, same)
	if !ok || string(keys.Key(layout.UploadPart)) != string(w.Key) {
		return false, fmt.Errorf("%w: a reader would look for the parts elsewhere", store.ErrParts)
	}
	err = env.Store.Parts().Begin(shard, id, keys, of, r.Session.Login.Owner())
	return err == nil, err
}

// putHead orders the put of a head, once it is sure that the store has what it promises. It
// runs on a goroutine of its own. w.Value is a view of the receive, or staged.
func putHead(r *op, w store.Write) {
	s, env := r.Session, r.c.env
	defer s.Flush()
	err := mayPutHead(r, &w)
	if err == nil {
		r.submit(w)
		return
	}
	switch {
	case errors.Is(err, store.ErrNoUpload) && w.ID.Age > 0:
		// The first copy may have taken effect, and the value have been replaced since.
		err = fmt.Errorf("%w: %w", store.ErrOutcomeUnknown, err)
	case errors.Is(err, store.ErrParts) && env.Store.Parts().MayLose():
		err = fmt.Errorf("%w: the cache has no room for all parts: %w", store.ErrTooLarge, err)
	}
	r.stage.Release()
	r.refuse(err)
}

func mayPutHead(r *op, w *store.Write) error {
	s, env := r.Session, r.c.env
	if !s.Parts {
		return fmt.Errorf("%w: the client has not said that it knows values in parts", store.ErrUnsupported)
	}
	list, err := env.Store.Parts().Head(w.Key, w.Value)
	if err != nil {
		return err
	}
	for _, p := range list {
		if p.Read { // after a restart: up to a GiB is read, for one head at a time
			select {
			case r.c.h.heads <- struct{}{}:
				defer func() { <-r.c.h.heads }()
			case <-s.Context().Done():
				return s.Context().Err()
			}
			break
		}
	}
	if err = store.HasParts(s.Context(), env.Store, cluster.ShardOf(w.Key, env.Shards), list); err != nil {
		env.Store.Parts().Refused(w.Value)
	}
	return err
}

// giveUp ends an upload that will have no head. That there is none such is as good.
func giveUp(r *op, key []byte) {
	if err := r.c.env.Store.Parts().GiveUp(key); err != nil {
		r.refuse(err)
		return
	}
	r.Confirm(func(dst []byte) []byte {
		return wire.AppendWriteReply(dst, r.Header.Type, r.Header.ID, wire.WriteReply{Applied: true})
	})
}

// wholeInfo is info with the length of the whole value, if what stands under the key may be the
// head of one in parts.
func wholeInfo(r *op, key []byte, info store.Info) (store.Info, error) {
	env := r.c.env
	if !env.Store.Parts().Any() || info.ValLen > layout.MaxHeadLen {
		return info, nil
	}
	v, err := env.Store.Get(r.Session.Context(), cluster.ShardOf(key, env.Shards), key, nil)
	if err == nil {
		info = store.Info{Version: v.Version, ValLen: int(layout.WholeLen(v.Data)), Expiry: v.Expiry}
	}
	return info, err
}

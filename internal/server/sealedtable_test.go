package server

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"

	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/server/handle"
	"github.com/rdmakv/rdmakv/internal/server/space"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// The systematic table of hostile messages: every type of request, every field of
// its struct at each of its edges, and every place in its bytes at the edges of every
// width, so that lengths disagree, reserved bytes are set and types are swapped. All
// of them are to be sealed properly: what is under test is what a client may say who
// knows a secret.

// A hostileMsg is one message of the table, not yet sealed.
type hostileMsg struct {
	name  string
	msg   []byte
	hold  bool   // the session holds a place, number 1, of holdKey
	hello bool   // for a session that is not open
	serve []byte // what the server finds where the message says that there is something
}

// Keys that the table is about; a tenant with the prefix "desk/" may name them.
var (
	plainKey   = []byte("desk/key")     // lasts
	numberKey  = []byte("desk/number")  // an increment finds a number that lasts
	expiresKey = []byte("desk/expires") // ... that expires in an hour
	holdKey    = []byte("desk/hold")    // too large for a reply
	absentKey  = []byte("desk/absent")
)

// A hostileBase is a proper message whose fields are about to be set to edges.
type hostileBase struct {
	hostileMsg
	fields reflect.Value // the struct, settable
	encode func() []byte
}

func baseOf[T any](name string, m T, encode func(dst []byte, id uint64, m T) []byte) *hostileBase {
	return &hostileBase{
		hostileMsg: hostileMsg{name: name},
		fields:     reflect.ValueOf(&m).Elem(),
		encode:     func() []byte { return encode(nil, 7, m) },
	}
}

func (b *hostileBase) holding() *hostileBase             { b.hold = true; return b }
func (b *hostileBase) serving(value []byte) *hostileBase { b.serve = value; return b }

// encoded is the message; nil if our own encoder refuses to write what no message may
// hold, as it does with lists that are too long. hostileWindows makes those.
func (b *hostileBase) encoded() (msg []byte) {
	defer func() {
		if recover() != nil {
			msg = nil
		}
	}()
	return b.encode()
}

// twoParts and reportFields are messages whose structs do not show what is in their lists.
type twoParts struct {
	ID    wire.RequestID
	Count uint16
	A, B  wire.BatchPart
}

func (m twoParts) parts() []byte {
	return wire.AppendBatchPart(wire.AppendBatchPart(nil, m.A), m.B)
}

type reportFields struct {
	Touch  wire.Touch
	More   wire.Touches
	Damage wire.Damage
}

// packFields are the requests of a pack.
type packFields struct {
	A wire.Put
	B wire.Get
	C wire.Delete
}

func appendPackFields(dst []byte, id uint64, m packFields) []byte {
	dst = wire.BeginPack(dst, wire.TypePack)
	dst = wire.AppendPacked(dst, wire.AppendPut(nil, id, m.A))
	dst = wire.AppendPacked(dst, wire.AppendGet(nil, id+1, m.B))
	return wire.AppendPacked(dst, wire.AppendDelete(nil, id+2, m.C))
}

// hostileBases are the proper messages: every type of request, of some several that
// go different ways. worldMap is the shard map in force, encoded.
func hostileBases(sp *space.Space, by *auth.Login, worldMap []byte) (all []*hostileBase) {
	add := func(b *hostileBase) { all = append(all, b) }
	update := func(name string, op wire.UpdateOp, delta int64, key []byte) {
		add(baseOf("increment or touch "+name, wire.Update{Op: op, Delta: delta, Key: key}, wire.AppendUpdate))
	}
	value := []byte("a value that the server READs")
	two := twoParts{Count: 2, A: wire.BatchPart{Key: plainKey, Value: value}, B: wire.BatchPart{Key: plainKey, Delete: true}}
	// Keys of one shard have a tag; the prefix of the tenant is before it.
	two.A.Key, two.B.Key = []byte("desk/{t}a"), []byte("desk/{t}b")

	hello := baseOf("hello", wire.Hello{ReplySize: 1 << 16, ClientID: [16]byte{1}, Name: []byte("x")}, func(dst []byte, id uint64, m wire.Hello) []byte {
		msg := wire.AppendHello(dst, id, m)
		wire.SignHello(msg, by.Secret.Reveal(), []byte("c"), []byte("a"))
		return msg
	})
	hello.hello = true
	add(hello)
	add(baseOf("view", wire.ViewRequest{}, wire.AppendViewRequest))
	add(baseOf("group", wire.GroupInfoRequest{Group: 1}, wire.AppendGroupInfoRequest))
	add(baseOf("put", wire.Put{Key: plainKey, Value: value}, wire.AppendPut))
	add(baseOf("put named", wire.Put{Key: plainKey, Value: value, Terms: wire.Terms{ID: wire.RequestID{Slot: 1, Seq: 1}, If: wire.CondVersion, IfVersion: 9, TTLMicros: 1e9}}, wire.AppendPut))
	add(baseOf("large put", wire.PutLarge{Key: plainKey, RKey: 1, Addr: 4096, ValueLen: uint64(len(value)), Checksum: checksum(value)}, wire.AppendPutLarge).serving(value))
	add(baseOf("large put that cannot be READ", wire.PutLarge{Key: plainKey, RKey: 1, Addr: 4096, ValueLen: 1 << 16}, wire.AppendPutLarge))
	add(baseOf("pack", packFields{A: wire.Put{Key: plainKey, Value: value}, B: wire.Get{Key: plainKey, MaxInline: 10}, C: wire.Delete{Key: absentKey}}, appendPackFields))
	add(baseOf("delete", wire.Delete{Key: plainKey}, wire.AppendDelete))
	add(baseOf("delete of nothing", wire.Delete{Key: absentKey}, wire.AppendDelete))
	update("of nothing", wire.UpdateIncrement, 1, absentKey)
	update("of a number", wire.UpdateIncrement, 1, numberKey)
	update("of a number that expires", wire.UpdateIncrement, 1, expiresKey)
	update("of what lasts", wire.UpdateTouch, 0, plainKey)
	update("of what expires", wire.UpdateTouch, 0, expiresKey)
	add(baseOf("get", wire.Get{Key: plainKey, MaxInline: 100}, wire.AppendGet))
	add(baseOf("get of a large value", wire.Get{Key: holdKey}, wire.AppendGet))
	add(baseOf("release", wire.Release{ID: 1}, wire.AppendRelease).holding())
	add(baseOf("fetch", wire.Fetch{Hold: 1, Length: 64}, wire.AppendFetch).holding())
	add(baseOf("exists", wire.Key{Key: plainKey}, wire.AppendExists))
	add(baseOf("scan", wire.Scan{Prefix: []byte("desk/"), After: []byte("desk/a"), End: []byte("desk/z"), Limit: 2}, wire.AppendScan))
	add(baseOf("scan of keys", wire.Scan{Prefix: []byte("desk/"), KeysOnly: true, From: true}, wire.AppendScan))
	add(baseOf("ping", wire.Ping{Return: 1, View: 1, Touches: wire.Touches(nil).Append(wire.Touch{Hash: 1, Count: 1})}, wire.AppendPing))
	add(baseOf("batch", two, func(dst []byte, id uint64, m twoParts) []byte {
		return wire.AppendBatch(dst, id, m.ID, m.Count, m.parts())
	}))
	inMemory := two.parts()
	add(baseOf("large batch", wire.BatchLarge{Count: 2, RKey: 1, Addr: 4096, Length: uint32(len(inMemory)), Checksum: checksum(inMemory)}, wire.AppendBatchLarge).serving(inMemory))
	// Parts that the server has READ itself, at their edges.
	var late *hostileBase
	late = baseOf("parts of a large batch", two, func(dst []byte, id uint64, m twoParts) []byte {
		late.serve = m.parts()
		return wire.AppendBatchLarge(dst, id, wire.BatchLarge{
			ID: m.ID, Count: m.Count, RKey: 1, Addr: 4096, Length: uint32(len(late.serve)), Checksum: checksum(late.serve),
		})
	})
	add(late)
	for _, in := range []uint64{0, sp.Incarnation} {
		add(baseOf("watch", wire.Watch{From: wire.Cursor{Incarnation: in, Version: 1}, Prefix: []byte("desk/")}, wire.AppendWatch))
	}
	add(baseOf("report", reportFields{wire.Touch{Hash: 1, Count: 1}, nil, wire.Damage{Place: 1 << 20, Version: 1 << 40, Shard: 1, Key: plainKey}},
		func(dst []byte, id uint64, m reportFields) []byte {
			m.More = m.More[:len(m.More)/12*12]
			return wire.AppendReport(dst, id, append(wire.Touches(nil).Append(m.Touch), m.More...), []wire.Damage{m.Damage, m.Damage})
		}))
	for kind := range wire.DocumentKinds() {
		m := wire.Document{Kind: kind}
		switch kind {
		case wire.AdminRotate:
			m.Argument = []byte("status")
		case wire.AdminRevoke, wire.AdminAllow:
			m.Argument = []byte("nobody")
		case wire.AdminGossipKeys:
			m.Argument = []byte("list")
		case wire.MapPrepare, wire.MapCommit, wire.MapAbandon:
			m.Argument = worldMap
		}
		m.Total = uint32(len(m.Argument))
		add(baseOf(kind.String(), m, wire.AppendDocument))
		m = wire.Document{Kind: kind, Serial: 1, From: 1}
		add(baseOf("more of "+kind.String(), m, wire.AppendDocument))
	}
	add(baseOf("status of", wire.Document{Kind: wire.AdminStatus, Argument: []byte("nobody")}, func(dst []byte, id uint64, m wire.Document) []byte {
		m.Total = uint32(len(m.Argument))
		return wire.AppendDocument(dst, id, m)
	}))
	add(baseOf("a part of a map", wire.Document{Kind: wire.MapPrepare, Serial: 1, Total: uint32(len(worldMap)), Offset: 9, Argument: worldMap[9:20]}, wire.AppendDocument))
	return all
}

// edges are the values of an unsigned field of so many bits: its own edges, and those
// of what servers make of numbers: durations, versions, sums.
func edges(bits int) (list []uint64) {
	top := uint64(1) << (bits - 1)
	for _, v := range []uint64{
		0, 1, 2, 3, 7, 8, 26, 255, 4096, 4097, handle.MaxTTL, handle.MaxTTL + 1, uint64(layout.MaxVersion), uint64(layout.MaxVersion) + 1,
		1<<16 - 1, 1 << 16, 1<<26 + 1, 1<<32 - 1, 1 << 32, math.MaxInt64 / 1000, math.MaxInt64/1000 + 1, 1e6,
		top - 1, top, top + 1, 2*top - 2, 2*top - 1,
	} {
		if v&^(2*top-1) == 0 {
			list = append(list, v)
		}
	}
	return list
}

// byteEdges are those of keys, values, prefixes and names.
func byteEdges() [][]byte {
	long := func(n int) []byte { return append([]byte("desk/"), make([]byte, n-5)...) }
	return [][]byte{
		nil, {0}, []byte("x"), []byte("desk/"), []byte("desk/{"), []byte("desk/{}"), []byte("desk/{t}"), plainKey, holdKey, {0xff, 0xff},
		long(255), long(256), long(4095), long(4096), long(4097), long(9000),
	}
}

// hostileFields calls yield for every field of every base at every edge; with the base
// itself first.
func hostileFields(bases []*hostileBase, yield func(hostileMsg)) {
	for _, b := range bases {
		tell := func(what string) {
			msg := b.encoded()
			if msg == nil {
				return
			}
			out := b.hostileMsg
			out.name, out.msg = b.name+what, msg
			yield(out)
		}
		tell("")
		leaves(b.fields, "", func(path string, f reflect.Value) {
			was := reflect.New(f.Type()).Elem()
			was.Set(f)
			switch f.Kind() {
			case reflect.Bool:
				f.SetBool(!was.Bool())
				tell(path + " turned")
			case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
				for _, v := range edges(f.Type().Bits()) {
					f.SetUint(v)
					tell(fmt.Sprintf("%s=%#x", path, v))
				}
			case reflect.Int64:
				for _, v := range edges(64) {
					f.SetInt(int64(v))
					tell(fmt.Sprintf("%s=%d", path, int64(v)))
				}
			case reflect.Slice:
				for _, v := range byteEdges() {
					f.SetBytes(v)
					tell(fmt.Sprintf("%s=%d bytes", path, len(v)))
				}
			}
			f.Set(was)
		})
	}
}

// leaves calls f for every field of a struct that is no struct itself.
func leaves(v reflect.Value, path string, f func(path string, v reflect.Value)) {
	for i := range v.NumField() {
		sf, at := v.Type().Field(i), v.Field(i)
		switch {
		case !sf.IsExported():
		case at.Kind() == reflect.Struct:
			leaves(at, path+" "+sf.Name, f)
		case at.Kind() == reflect.Array: // MACs and ids: any bytes are like any others
		default:
			f(path+" "+sf.Name, at)
		}
	}
}

// windowed bounds how far into a message its bytes are set: further there is only
// the rest of a key or a value.
const windowed = 160

// hostileWindows calls yield for every place in the bytes of every base, but those of
// the seal, at the edges of every width.
func hostileWindows(bases []*hostileBase, yield func(hostileMsg)) {
	le := binary.LittleEndian
	for _, b := range bases {
		whole := b.encode()
		for width := 1; width <= 8; width *= 2 {
			top := uint64(1) << (8*width - 1)
			for at := 0; at+width <= min(len(whole), windowed); at += width {
				if at >= 24 && at < wire.HeaderSize {
					continue // sequence and tag
				}
				for _, v := range []uint64{0, 1, 2, top - 1, top, 2*top - 2, 2*top - 1} {
					out := b.hostileMsg
					out.msg = append([]byte(nil), whole...)
					var word [8]byte
					le.PutUint64(word[:], v)
					copy(out.msg[at:at+width], word[:])
					out.name = fmt.Sprintf("%s, %d bytes at %d=%#x", b.name, width, at, v)
					yield(out)
				}
			}
		}
		for n := range min(len(whole), windowed) { // cut short, with a length that fits and one that does not
			if n < wire.HeaderSize {
				continue
			}
			for _, fits := range []bool{false, true} {
				out := b.hostileMsg
				out.name, out.msg = fmt.Sprintf("%s, %d bytes of it", b.name, n), append([]byte(nil), whole[:n]...)
				if fits {
					le.PutUint32(out.msg[16:], uint32(n-wire.HeaderSize))
				}
				yield(out)
			}
		}
	}
}

package handle

import (
	"fmt"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A row says of one type of request which right it needs, where it runs, which
// keys it names and what is done for it.
type row struct {
	right right
	where place
	do
}

// A place is where a request is handled.
type place uint8

const (
	inSession place = iota // by the session itself, before there is a login (Hello)
	onLane                 // at once: it does not wait
	onGets                 // on the workers of the space that may wait for the disk
	onScans                // on those for what takes long by nature
	onCluster              // on the node's workers for what a client has to know before it can begin
	onAdmin                // on the node's workers for its operator
)

// A keyKind says which keys a request names, and so how they are judged.
type keyKind uint8

const (
	unsaid       keyKind = iota // a row that is not there
	noKeys                      //
	oneKey                      // refused if the login may not name it, if it is another node's, or the key of a part where none is meant (parts.go)
	prefixOfKeys                // refused if the login may not name it, without a shard map, or if a group of keys is named that the node does not lead
	manyKeys                    // each is judged as one key is
	toldKeys                    // what is told of a key that is not the login's to name, or not here, is left out
	heldPlace                   // the key was judged when the place was held; the place must be this session's
)

// A do is what is done for a request, together with the keys that the request
// names. It is made by the functions below alone. They parse the message and judge
// its keys; a handler gets a message whose keys have been judged, and cannot get
// another one, because no handler parses.
type do struct {
	keys keyKind
	run  func(r *op)
}

// keyless is of requests that name no key.
func keyless[M any](parse func(body []byte) (M, error), run func(*op, M)) do {
	return do{noKeys, func(r *op) {
		if m, ok := parsed(r, parse); ok {
			run(r, m)
		}
	}}
}

// ofKey is of requests that name one key.
func ofKey[M any](parse func(body []byte) (M, error), key func(M) []byte, run func(*op, M)) do {
	return do{oneKey, func(r *op) {
		if m, ok := parsed(r, parse); ok && names(r, key(m)) {
			run(r, m)
		}
	}}
}

// ofPrefix is of requests that name all keys with a prefix; where shards have replicas, those of one
// group (op.shards). Those among them that are another node's are left out of the answer (foreign).
func ofPrefix[M any](parse func(body []byte) (M, error), of func(M) (prefix []byte, group uint32), run func(*op, M)) do {
	return do{prefixOfKeys, func(r *op) {
		m, ok := parsed(r, parse)
		if !ok {
			return
		}
		if prefix, group := of(m); r.mayName(prefix) && r.covers(group) {
			run(r, m)
		}
	}}
}

// A judge judges the keys of a request that names several, one by one. A handler
// that has one cannot make a write of several parts without it (judge.write). Only
// ofKeys and tellingOf make judges.
type judge struct{ r *op }

// ofKeys is of requests that name several keys.
func ofKeys[M any](parse func(body []byte) (M, error), run func(*op, M, judge)) do {
	return do{manyKeys, func(r *op) {
		if m, ok := parsed(r, parse); ok {
			run(r, m, judge{r})
		}
	}}
}

// tellingOf is of requests that tell something about several keys.
func tellingOf[M any](parse func(body []byte) (M, error), run func(*op, M, judge)) do {
	d := ofKeys(parse, run)
	d.keys = toldKeys
	return d
}

// ofHold is of requests that name a place which is held for this session. With take
// the place is taken out of the session's holds and is the handler's.
func ofHold[M any](parse func(body []byte) (M, error), id func(M) uint64, take bool, run func(*op, M, *hold)) do {
	return do{heldPlace, func(r *op) {
		m, ok := parsed(r, parse)
		if !ok {
			return
		}
		if h := r.c.holdOf(id(m), take); h != nil {
			run(r, m, h)
		} else {
			r.Fail(wire.StatusNoHold, "")
		}
	}}
}

// parsed is the message of a request. false: it breaks the protocol, which has
// ended the session.
func parsed[M any](r *op, parse func(body []byte) (M, error)) (M, bool) {
	m, err := parse(r.Body)
	if err != nil {
		r.Violation(base.CauseBody, err)
	}
	return m, err == nil
}

// requests is the table of all types of requests. What is not in it is not served.
var requests = [wire.MaxRequest + 1]row{
	wire.TypeHello: {where: inSession},
	wire.TypePing:  {mayNothing, onLane, keyless(wire.ParsePing, (*op).ping)},

	wire.TypeView:   {mayRead, onLane, keyless(wire.ParseViewRequest, (*op).view)},
	wire.TypeGet:    {mayRead, onGets, ofKey(wire.ParseGet, func(m wire.Get) []byte { return m.Key }, (*op).get)},
	wire.TypeExists: {mayRead, onGets, ofKey(wire.ParseKey, func(m wire.Key) []byte { return m.Key }, (*op).exists)},
	wire.TypeFetch:  {mayRead, onGets, ofHold(wire.ParseFetch, func(m wire.Fetch) uint64 { return m.Hold }, false, (*op).fetchHeld)},
	// The lane gives a held place back without waiting, which is why a client may send many of these.
	wire.TypeRelease: {mayRead, onLane, ofHold(wire.ParseRelease, func(m wire.Release) uint64 { return m.ID }, true, (*op).release)},
	wire.TypeScan:    {mayRead, onScans, ofPrefix(wire.ParseScan, func(m wire.Scan) ([]byte, uint32) { return m.Prefix, m.Group }, (*op).scan)},
	wire.TypeWatch:   {mayRead, onScans, ofPrefix(wire.ParseWatch, func(m wire.Watch) ([]byte, uint32) { return m.Prefix, m.Group }, (*op).watch)},
	wire.TypeReport:  {mayRead, onLane, tellingOf(wire.ParseReport, (*op).report)},

	wire.TypeGroupInfo: {mayRead, onLane, keyless(wire.ParseGroupInfoRequest, groupInfo)},

	wire.TypePut:        {mayWrite, onLane, ofKey(wire.ParsePut, func(m wire.Put) []byte { return m.Key }, (*op).put)},
	wire.TypePutLarge:   {mayWrite, onLane, ofKey(wire.ParsePutLarge, func(m wire.PutLarge) []byte { return m.Key }, (*op).putLarge)},
	wire.TypeDelete:     {mayWrite, onLane, ofKey(wire.ParseDelete, func(m wire.Delete) []byte { return m.Key }, (*op).delete)},
	wire.TypeUpdate:     {mayWrite, onLane, ofKey(wire.ParseUpdate, func(m wire.Update) []byte { return m.Key }, (*op).update)},
	wire.TypeBatch:      {mayWrite, onLane, ofKeys(wire.ParseBatch, (*op).batch)},
	wire.TypeBatchLarge: {mayWrite, onLane, ofKeys(wire.ParseBatchLarge, (*op).batchLarge)},

	// One of a kind that is not known; what is has a row of its own (documents.go).
	wire.TypeDocument: {mayRead, onLane, keyless(wire.ParseDocument, func(r *op, m wire.Document) {
		r.Fail(wire.StatusUnsupported, fmt.Sprintf("%v: this server does not know it", m.Kind))
	})},
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/rdmakv/rdmakv/bench/compare/jobs"
	"github.com/rdmakv/rdmakv/bench/compare/report"
	"github.com/rdmakv/rdmakv/bench/compare/servers"
	"github.com/rdmakv/rdmakv/internal/load"
)

// A fake is a member that has some keys. Calls that it has none of end the test.
type fake struct {
	clientv3.KV
	data         map[string]string
	broken       error
	largest      int // transaction
	serializable int // gets
}

func (f *fake) Get(_ context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if clientv3.OpGet(key, opts...).IsSerializable() {
		f.serializable++
	}
	return (*clientv3.GetResponse)(f.find(key)), f.broken
}

func (f *fake) find(key string) *etcdserverpb.RangeResponse {
	r := new(etcdserverpb.RangeResponse)
	if v, ok := f.data[key]; ok {
		r.Kvs = []*mvccpb.KeyValue{{Key: []byte(key), Value: []byte(v)}}
	}
	return r
}

func (f *fake) Put(_ context.Context, key, value string, _ ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	f.data[key] = value
	return nil, f.broken
}

func (f *fake) Txn(context.Context) clientv3.Txn { return &fakeTxn{f: f} }

type fakeTxn struct {
	clientv3.Txn
	f   *fake
	ops []clientv3.Op
}

func (t *fakeTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.ops = ops
	return t
}

func (t *fakeTxn) Commit() (*clientv3.TxnResponse, error) {
	t.f.largest = max(t.f.largest, len(t.ops))
	if t.f.broken != nil {
		return nil, t.f.broken
	}
	r := new(clientv3.TxnResponse)
	for _, op := range t.ops {
		one := new(etcdserverpb.ResponseOp)
		if op.IsPut() {
			t.f.data[string(op.KeyBytes())] = string(op.ValueBytes())
		} else {
			one.Response = &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: t.f.find(string(op.KeyBytes()))}
		}
		r.Responses = append(r.Responses, one)
	}
	return r, nil
}

// TestStore: what the load generator asks reaches etcd, a key that is not there is told as one, and
// no transaction is larger than etcd takes.
func TestStore(t *testing.T) {
	ctx, f := t.Context(), &fake{data: map[string]string{}}
	s := &store{kv: f}
	if err := s.Put(ctx, []byte("a"), []byte("1")); err != nil || f.data["a"] != "1" {
		t.Errorf("%v, %v", err, f.data)
	}
	dst := make([]byte, 5, 16)
	if v, _, err := s.Get(ctx, []byte("a"), dst); err != nil || string(v) != "1" || &v[0] != &dst[0] {
		t.Errorf("%q, %v", v, err)
	}
	if _, _, err := s.Get(ctx, []byte("b"), nil); !errors.Is(err, load.ErrNotFound) {
		t.Errorf("a key that is not there: %v", err)
	}
	if f.serializable != 0 {
		t.Error("a linearizable get was serializable")
	}
	late := &store{kv: f, serializable: true}
	if _, _, err := late.Get(ctx, []byte("a"), nil); err != nil || f.serializable != 1 {
		t.Errorf("a serializable get was not: %v", err)
	}
	const n = 300
	keys, values, errs := make([][]byte, n), make([][]byte, n), make([]error, n)
	for i := range n {
		keys[i], values[i] = fmt.Append(nil, "key", i), fmt.Append(nil, "value", i)
	}
	if s.PutMany(ctx, keys[1:], values[1:], errs[1:]); errors.Join(errs...) != nil || f.largest > 128 || f.data["key299"] != "value299" {
		t.Errorf("%v, %d in a transaction", errors.Join(errs...), f.largest)
	}
	got := make([][]byte, n)
	s.GetMany(ctx, keys, got, errs)
	if !errors.Is(errs[0], load.ErrNotFound) || errors.Join(errs[1:]...) != nil || string(got[299]) != "value299" {
		t.Errorf("%v, %q", errors.Join(errs...), got[299])
	}
	f.broken = errors.New("no leader")
	s.PutMany(ctx, keys, values, errs)
	for _, err := range errs {
		if !errors.Is(err, f.broken) {
			t.Fatalf("a transaction that failed: %v", err)
		}
	}
}

// statuses answers of each endpoint.
type statuses map[string]*clientv3.StatusResponse

func (s statuses) Status(_ context.Context, endpoint string) (*clientv3.StatusResponse, error) {
	if s[endpoint] == nil {
		return nil, errors.New("refused")
	}
	return s[endpoint], nil
}

// TestLeaderOf: the member that is its own leader is asked. That nobody is, is an error, and not a
// member that passes everything on.
func TestLeaderOf(t *testing.T) {
	member := func(id, leader uint64) *clientv3.StatusResponse {
		return &clientv3.StatusResponse{Header: &etcdserverpb.ResponseHeader{MemberId: id}, Leader: leader}
	}
	for name, c := range map[string]struct {
		told statuses
		want string
	}{
		"the second leads": {statuses{"a": member(1, 2), "b": member(2, 2), "c": member(3, 2)}, "b"},
		"nobody":           {statuses{"a": member(1, 0), "b": member(2, 0), "c": member(0, 0)}, ""},
		"one is silent":    {statuses{"a": member(1, 3), "c": member(3, 3)}, ""},
	} {
		got, err := leaderOf(t.Context(), c.told, []string{"a", "b", "c"})
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestWorker: jobs for an etcd that runs are done in each way of asking, where it is installed.
func TestWorker(t *testing.T) {
	if _, err := exec.LookPath("etcd"); err != nil {
		t.Skip("etcd is not installed; scripts/bench-compare installs it")
	}
	sockets, err := os.MkdirTemp("", "kvc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockets) })
	s, err := servers.Etcd{Members: 3}.Start(t.Context(), servers.Place{Disk: t.TempDir(), Sockets: sockets})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}()
	l := jobs.Load{
		Target: jobs.Target{System: "etcd", Addr: s.TCP, Others: s.OtherTCP(), PIDs: s.PIDs()}, Records: 200, Value: 100, Op: "get", Choice: "uniform",
		Callers: 3, Warm: 10 * time.Millisecond, Duration: 200 * time.Millisecond, Seed: 1,
	}
	work(t, "Fill", l)
	for _, asked := range []jobs.Etcd{{}, {Serializable: true}, {Many: true}, {AtLeader: true}, {Many: true, AtLeader: true}} {
		for _, op := range []string{"get", "put"} {
			l.Op, l.Target.Etcd = op, asked
			if got := work(t, "Load", l); got.Ops == 0 || got.P50 <= 0 {
				t.Errorf("%s, %+v: %+v", op, asked, got)
			}
		}
	}
	other := l
	other.Target.System = "redis"
	var out bytes.Buffer
	text, err := json.Marshal(map[string]jobs.Load{"Load": other})
	if err != nil {
		t.Fatal(err)
	}
	if err := jobs.Work(t.Context(), bytes.NewReader(text), &out, open); err == nil || !strings.Contains(err.Error(), "redis") {
		t.Errorf("a job for Redis: %v", err)
	}
}

// work does one job.
func work(t *testing.T, kind string, l jobs.Load) (got report.Sample) {
	t.Helper()
	text, err := json.Marshal(map[string]jobs.Load{kind: l})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := jobs.Work(t.Context(), bytes.NewReader(text), &out, open); err != nil {
		t.Fatalf("%s %+v: %v", kind, l.Target.Etcd, err)
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	return got
}

package keys

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
)

// TestBatchLines: what a line of a batch may say, and what it must not.
func TestBatchLines(t *testing.T) {
	for text, want := range map[string]string{
		`{"key":"k","value":"v"}`:                                   "k=v",
		`{"key":"k","value":"v","ttl":"90s"}`:                       "k=v 1m30s",
		`{"key":"k","value":"","ttl":"never"}`:                      "k=",
		`{"key":"k","value":"v","if_absent":true}`:                  "k=v absent",
		`{"if_version":18446744073709551615,"key":"k","value":"v"}`: "k=v if 18446744073709551615",
		`{"key":"k","delete":true}`:                                 "k delete",
		`{"key_b64":"aw==","delete":true,"if_version":3}`:           "k delete if 3",
	} {
		r, err := parseLine([]byte(text), true)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := string(r.Key)
		if r.Delete {
			got += " delete"
		} else {
			got += "=" + string(r.Value)
		}
		if r.TTL != 0 {
			got += " " + r.TTL.String()
		}
		if r.IfAbsent {
			got += " absent"
		}
		if r.IfVersion != 0 {
			got += fmt.Sprint(" if ", r.IfVersion)
		}
		if got != want {
			t.Errorf("%s is read as %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		`{"key":"k"}`:                                 "exactly one of value",
		`{"key":"k","delete":false}`:                  "exactly one of value",
		`{"key":"k","delete":true,"value":""}`:        "deletes a key",
		`{"key":"k","delete":true,"ttl":"1s"}`:        "deletes a key",
		`{"key":"k","delete":true,"if_absent":true}`:  "deletes a key",
		`{"key":"k","delete":"yes"}`:                  "as delete",
		`{"key":"k","delete":null}`:                   "as delete",
		`{"key":"k","value":"v","if_version":0}`:      "no key has",
		`{"key":"k","value":"v","if_version":-1}`:     "as if_version",
		`{"key":"k","value":"v","if_version":1.5}`:    "as if_version",
		`{"key":"k","value":"v","ttl":"soon"}`:        "want a time",
		`{"key":"k","value":"v","ttl":"-1s"}`:         "want a time",
		`{"key":"k","value":"v","ttl":3}`:             "as ttl",
		`{"key":"k","value":"v","ttl":"1s","ttl":""}`: "twice",
		`{"key":"k","value":"v","expire":"1s"}`:       "unknown name",
		`{"delete":true}`:                             "exactly one of key",
	} {
		if _, err := parseLine([]byte(text), true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	// import knows nothing of these.
	if _, err := parseRecord([]byte(`{"key":"k","value":"v","ttl":"1s"}`)); err == nil {
		t.Error("import takes a ttl")
	}
}

// TestReadBatch: line numbers in errors, and an end to what is read.
func TestReadBatch(t *testing.T) {
	b, err := readBatch(strings.NewReader("{\"key\":\"a\",\"value\":\"1\"}\n\n{\"key\":\"b\",\"delete\":true}"), "x")
	if err != nil || b.Len() != 2 {
		t.Fatal(err)
	}
	if _, err := readBatch(strings.NewReader("{\"key\":\"a\",\"value\":\"1\"}\n{}"), "x"); err == nil || !strings.Contains(err.Error(), "x, line 2") {
		t.Error(err)
	}
	if _, err := readBatch(&endless{line: []byte("{\"key\":\"a\",\"value\":\"" + strings.Repeat("1", 4000) + "\"}\n")}, "x"); !errors.Is(err, client.ErrBatch) {
		t.Error(err)
	}
}

// endless is a stream without an end.
type endless struct {
	line []byte
	at   int // what is read next
}

func (e *endless) Read(p []byte) (n int, _ error) {
	for n < len(p) {
		m := copy(p[n:], e.line[e.at:])
		n, e.at = n+m, (e.at+m)%len(e.line)
	}
	return n, nil
}

// TestEventLines: how changes are shown.
func TestEventLines(t *testing.T) {
	pos, err := client.ParsePosition(strings.Repeat("0a", 16))
	if err != nil {
		t.Fatal(err)
	}
	put := client.Event{Op: client.EventPut, Key: []byte("k\n"), Value: []byte("v"), HasValue: true, Size: 1, Version: 7, More: true, Position: pos}
	for _, tc := range []struct {
		e          client.Event
		text, json string
	}{
		{put, "put\t\"k\\n\"\tv\n", `{"op":"put","key":"k\n","value":"v","size":1,"version":7,"more":true,"position":"0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"}` + "\n"},
		{client.Event{Op: client.EventDelete, Key: []byte("k"), Version: 8, Position: pos}, "delete\tk\n",
			`{"op":"delete","key":"k","version":8,"position":"0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"}` + "\n"},
		{client.Event{Op: client.EventSkip, Skipped: true, Position: pos}, "skip\n", `{"op":"skip","position":"0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"}` + "\n"},
	} {
		if got := eventLine(&app.App{Output: "text"}, tc.e); got != tc.text {
			t.Errorf("%q, want %q", got, tc.text)
		}
		if got := eventLine(&app.App{Output: "json"}, tc.e); got != tc.json {
			t.Errorf("%s, want %s", got, tc.json)
		}
	}
}

func TestParseTTL(t *testing.T) {
	for text, want := range map[string]time.Duration{"never": 0, "": 0, "90s": 90 * time.Second, "1.5h": 90 * time.Minute} {
		if got, err := parseTTL(text); err != nil || got != want {
			t.Errorf("%q: %v %v", text, got, err)
		}
	}
	for _, text := range []string{"0", "0s", "-1s", "10", "tomorrow"} {
		if _, err := parseTTL(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

// TestMeta: expiry in records that go out, which import passes over.
func TestMeta(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 600_000_000, time.FixedZone("", 3600))
	line := appendRecord(nil, record{Key: []byte("k"), Value: []byte("v"), HasValue: true, Expires: at})
	if want := `{"key":"k","value":"v","expires":"2030-01-02T02:04:05.6Z"}` + "\n"; string(line) != want {
		t.Errorf("%s", line)
	}
	if r, err := parseRecord(bytes.TrimSpace(line)); err != nil || string(r.Value) != "v" {
		t.Error(err)
	}
}

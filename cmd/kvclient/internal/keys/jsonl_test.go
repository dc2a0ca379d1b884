package keys

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
)

// TestRecords: what goes out comes in again, whatever is in it.
func TestRecords(t *testing.T) {
	for _, r := range []record{
		{Key: []byte("k"), Value: []byte("v")},
		{Key: []byte("k"), Value: nil},
		{Key: []byte("\xff"), Value: []byte("\x00\xfe")},
		{Key: []byte("a\nb\x1b\"\\"), Value: []byte("<&>\u2028\ufffd")},
		{Key: []byte("\U0001f600"), Value: []byte(`\ud83d`)},
	} {
		r.HasValue = true
		line := appendRecord(nil, r)
		if !json.Valid(line) || bytes.Count(line, []byte("\n")) != 1 {
			t.Errorf("%q is no line of JSON", line)
		}
		got, err := parseRecord(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil || !bytes.Equal(got.Key, r.Key) || !bytes.Equal(got.Value, r.Value) {
			t.Errorf("%q is read as %q, %q, %v", line, got.Key, got.Value, err)
		}
	}
}

// TestRecordForms: what import takes beside what export writes, and what it
// must not guess at.
func TestRecordForms(t *testing.T) {
	for text, want := range map[string]string{
		`{"key":"k","value":"v","size":1,"version":7}`: "k=v",
		`  { "value" : "v" , "key_b64" : "aw==" }  `:   "k=v",
		`{"key":"\ud83d\ude00","value":""}`:            "\U0001f600=",
		`{"key":"\\ud800","value":""}`:                 `\ud800=`,
	} {
		r, err := parseRecord([]byte(text))
		if got := string(r.Key) + "=" + string(r.Value); err != nil || got != want {
			t.Errorf("%s is read as %q, %v, want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		`{"key":"k","KEY":"l","value":""}`:                            "unknown name",
		`{"key":"k"}`:                                                 "exactly one of value",
		`{"value":""}`:                                                "exactly one of key",
		`{"key":"k","key_b64":"aw==","value":""}`:                     "exactly one of key",
		`{"key":"k","value":"a","value":"b"}`:                         "twice",
		`{"key":null,"value":""}`:                                     "null",
		`{"key":7,"value":""}`:                                        "number",
		`{"key":["a"],"value":""}`:                                    "array",
		`{"key":{},"value":""}`:                                       "object",
		`["key","value"]`:                                             "no record",
		`null`:                                                        "no record",
		`{"key":"k","value":""`:                                       "ends",
		`{"key":"k","value":""}}`:                                     "behind",
		`{"key_b64":"aw=","value":""}`:                                "base64",
		`{"key_b64":"aw==\n","value_b64":"ax=="}`:                     "base64",
		`{"key":"\udc00","value":""}`:                                 "surrogate",
		`{"key":"\ud800\ud800","value":""}`:                           "surrogate",
		`{"key":"\ud800","value":""}`:                                 "surrogate",
		"{\"key\":\"\xff\",\"value\":\"\"}":                           "UTF-8",
		`{"key":"` + strings.Repeat("k", 4097) + `","value":""}`:      "4097",
		`{"key":"k","value":"","` + strings.Repeat("x", 500) + `":1}`: "unknown name",
	} {
		_, err := parseRecord([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %q", text, err, want)
		} else if len(err.Error()) > 300 {
			t.Errorf("%.80s: the message has %d bytes", text, len(err.Error()))
		}
	}
}

// TestReadLine: lines of any length, with and without an end.
func TestReadLine(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	in := bufio.NewReaderSize(strings.NewReader("a\r\n\n"+long+"\nlast"), 16)
	for _, want := range []string{"a", "", long, "last"} {
		got, err := readLine(in)
		if err != nil || string(got) != want {
			t.Fatalf("%.20q, %v, want %.20q", got, err, want)
		}
	}
	if _, err := readLine(in); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

// FuzzRecord: no line makes the parser panic, and an accepted one is the
// record that it writes.
func FuzzRecord(f *testing.F) {
	for _, s := range []string{`{"key":"k","value":"v"}`, `{"key_b64":"aw==","value_b64":""}`, `{"key":"\ud83d\ude00","value":"\u0000"}`, `{`, `{"size":1e9}`, "\"\\ud800"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parseRecord(text)
		if err != nil {
			return
		}
		again, err := parseRecord(bytes.TrimSuffix(appendRecord(nil, r), []byte("\n")))
		if err != nil || !bytes.Equal(again.Key, r.Key) || !bytes.Equal(again.Value, r.Value) {
			t.Fatalf("%q became %q, %q, then %q, %q, %v", text, r.Key, r.Value, again.Key, again.Value, err)
		}
	})
}

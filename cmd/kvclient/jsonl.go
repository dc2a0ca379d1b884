package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A record is one line of JSON Lines, as export and scan write them and
// import reads them:
//
//	{"key":"text","value":"text"}
//	{"key_b64":"AP8=","value_b64":""}
//
// A key or value that is not valid UTF-8 stands in base64 under the second
// name, because a JSON string cannot hold it. import takes either form.
type record struct {
	Key      []byte
	Value    []byte
	HasValue bool
	// Beside key and value, in output only.
	Size    *int64
	Version *uint64
	Expires time.Time // zero: never
	Existed *bool
	Exists  *bool
	Number  *int64
	// Beside key and value, in a batch only.
	Delete bool
	client.PutOptions
}

// appendRecord appends the record as one line.
func appendRecord(dst []byte, r record) []byte {
	dst = appendField(append(dst, '{'), "key", r.Key)
	if r.HasValue {
		dst = appendField(append(dst, ','), "value", r.Value)
	}
	if r.Size != nil {
		dst = strconv.AppendInt(append(dst, `,"size":`...), *r.Size, 10)
	}
	if r.Version != nil {
		dst = strconv.AppendUint(append(dst, `,"version":`...), *r.Version, 10)
	}
	if !r.Expires.IsZero() {
		dst = append(dst, `,"expires":"`...)
		dst = append(r.Expires.UTC().AppendFormat(dst, time.RFC3339Nano), '"')
	}
	if r.Number != nil {
		dst = strconv.AppendInt(append(dst, `,"number":`...), *r.Number, 10)
	}
	if r.Existed != nil {
		dst = strconv.AppendBool(append(dst, `,"existed":`...), *r.Existed)
	}
	if r.Exists != nil {
		dst = strconv.AppendBool(append(dst, `,"exists":`...), *r.Exists)
	}
	return append(dst, '}', '\n')
}

// appendField appends "name":"text" or "name_b64":"…".
func appendField(dst []byte, name string, b []byte) []byte {
	dst = append(append(dst, '"'), name...)
	if !utf8.Valid(b) {
		dst = base64.StdEncoding.AppendEncode(append(dst, `_b64":"`...), b)
		return append(dst, '"')
	}
	dst = append(dst, `":`...)
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(string(b)) // a string always encodes
	return append(dst, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}

// parseRecord reads one line. It refuses whatever it would otherwise have to
// guess: unknown, missing or repeated names, both forms at once, text that is
// no UTF-8. encoding/json forgives all of that (it takes the last of two, and
// replaces bad text by other text), so the object is read token by token.
func parseRecord(text []byte) (record, error) { return parseLine(text, false) }

// parseLine is parseRecord, or reads a line of a batch, which may have more.
func parseLine(text []byte, batch bool) (record, error) {
	if !utf8.Valid(text) {
		return record{}, errors.New("is not UTF-8: write such keys and values as key_b64 and value_b64")
	}
	if loneSurrogate(text) {
		return record{}, errors.New(`has half of a surrogate pair (\ud800 to \udfff): write it as key_b64 or value_b64`)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return record{}, errors.New(`is no record {"key":...,"value":...}`)
	}
	r := record{HasValue: true}
	fields := make(map[string][]byte, 2)
	for dec.More() {
		if err := parseField(dec, fields, batch, &r); err != nil {
			return record{}, err
		}
	}
	if _, err := dec.Token(); err != nil {
		return record{}, jsonReason(err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return record{}, errors.New("has something behind the record")
	}
	var err error
	if r.Key, err = oneOf(fields, "key"); err != nil {
		return record{}, err
	}
	if r.Delete {
		_, asText := fields["value"]
		_, asRaw := fields["value_b64"]
		if asText || asRaw || r.TTL != 0 || r.IfAbsent {
			return record{}, errors.New("deletes a key and has a value, ttl or if_absent for it")
		}
	} else if r.Value, err = oneOf(fields, "value"); err != nil {
		return record{}, err
	}
	switch {
	case len(r.Key) == 0:
		return record{}, fmt.Errorf("has an empty key: keys have 1 to %d bytes", layout.MaxKeyLen)
	case len(r.Key) > layout.MaxKeyLen:
		return record{}, fmt.Errorf("has a key of %d bytes: keys have 1 to %d", len(r.Key), layout.MaxKeyLen)
	case len(r.Value) > layout.MaxValueLen:
		return record{}, fmt.Errorf("has a value of %d bytes: at most %d", len(r.Value), layout.MaxValueLen)
	}
	return r, nil
}

// parseField reads one name and its value.
func parseField(dec *json.Decoder, fields map[string][]byte, batch bool, r *record) error {
	t, err := dec.Token()
	if err != nil {
		return jsonReason(err)
	}
	name := t.(string) // the decoder lets nothing else stand here
	if _, twice := fields[name]; twice {
		return fmt.Errorf("has %s twice", quote([]byte(name)))
	}
	if batch {
		if known, err := r.parseTerm(dec, name); known || err != nil {
			fields[name] = nil
			return err
		}
	}
	switch name {
	case "expires": // written by scan -o json, as are the next; of no meaning here
		fields[name] = nil
		var s string
		if err := dec.Decode(&s); err != nil {
			return jsonReason(err)
		}
		return nil
	case "size", "version":
		var n json.Number
		if err := dec.Decode(&n); err != nil {
			return jsonReason(err)
		}
		fields[name] = nil
		return nil
	case "key", "value", "key_b64", "value_b64":
	default:
		return fmt.Errorf("has the unknown name %s", quote([]byte(name)))
	}
	var s *string
	if err := dec.Decode(&s); err != nil {
		return jsonReason(err)
	}
	if s == nil {
		return fmt.Errorf("has null as %s", name)
	}
	if fields[name] = []byte(*s); strings.HasSuffix(name, "_b64") {
		if fields[name], err = base64.StdEncoding.Strict().DecodeString(*s); err != nil {
			return fmt.Errorf("has a %s that is not base64", name)
		}
	}
	return nil
}

// parseTerm reads what only a line of a batch may have; known tells if it is
// that.
func (r *record) parseTerm(dec *json.Decoder, name string) (known bool, err error) {
	var ttl string
	var into any
	switch name {
	case "delete":
		into = &r.Delete
	case "if_absent":
		into = &r.IfAbsent
	case "if_version":
		into = &r.IfVersion
	case "ttl":
		into = &ttl
	default:
		return false, nil
	}
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		return true, jsonReason(err)
	}
	if string(raw) == "null" || json.Unmarshal(raw, into) != nil {
		return true, fmt.Errorf("has %s as %s", quote(raw), name)
	}
	if into == &r.IfVersion && r.IfVersion == 0 {
		return true, errors.New("has 0 as if_version, which no key has")
	}
	if into == &ttl {
		if r.TTL, err = parseTTL(ttl); err != nil {
			return true, fmt.Errorf("has the ttl %s: %w", quote([]byte(ttl)), err)
		}
	}
	return true, nil
}

// oneOf returns the field that stands there as text or in base64.
func oneOf(fields map[string][]byte, name string) ([]byte, error) {
	text, asText := fields[name]
	raw, asRaw := fields[name+"_b64"]
	if asText == asRaw {
		return nil, fmt.Errorf("needs exactly one of %s and %s_b64", name, name)
	}
	if asText {
		return text, nil
	}
	return raw, nil
}

// jsonReason says what is wrong with a line in terms of the line.
func jsonReason(err error) error {
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF) || err == io.EOF:
		return errors.New("ends in the middle of the record")
	case errors.As(err, &wrong):
		return fmt.Errorf("has a %s where a text belongs", wrong.Value)
	}
	return fmt.Errorf("is no JSON: %w", err)
}

// loneSurrogate reports a \uD800 to \uDFFF escape without its other half.
// JSON allows it, but it stands for no character and so for no bytes.
func loneSurrogate(text []byte) bool {
	high := false // the escape before this one was the first half
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			if high {
				return true
			}
			continue
		}
		half := 0
		if i+5 < len(text) && text[i+1] == 'u' {
			if v, err := strconv.ParseUint(string(text[i+2:i+6]), 16, 16); err == nil && v >= 0xd800 && v < 0xe000 {
				half = 1 + int(v-0xd800)/0x400
			}
		}
		switch {
		case half == 2 && high:
			high = false
		case half == 1 && !high:
			high = true
		case half != 0 || high:
			return true
		}
		if half != 0 {
			i += 5
		} else {
			i++
		}
	}
	return high
}

// maxLine bounds a line: a key and a value of full size in which every byte
// is written as \u00xx.
const maxLine = 6*(layout.MaxKeyLen+layout.MaxValueLen) + 1024

// readLine reads one line of bounded length, without its newline. It returns
// io.EOF when there is none left.
func readLine(r *bufio.Reader) ([]byte, error) {
	var long []byte
	for {
		part, err := r.ReadSlice('\n')
		if err == bufio.ErrBufferFull {
			if len(long)+len(part) > maxLine {
				return nil, fmt.Errorf("is longer than %d bytes", maxLine)
			}
			long = append(long, part...)
			continue
		}
		if len(long)+len(part) == 0 && err == io.EOF {
			return nil, io.EOF
		}
		if err != nil && err != io.EOF {
			return nil, err
		}
		long = append(long, part...)
		return bytes.TrimRight(long, "\r\n"), nil
	}
}

package keys

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
	"github.com/rdmakv/rdmakv/internal/cli"
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
//
// It is also what other commands print with -o json, so that the same thing has the
// same name everywhere. A field that is not known is nil or zero and is left out.
type record struct {
	Key      []byte
	Value    []byte
	HasValue bool // an empty value is a value
	// Beside key and value, in output only.
	Size    *int64 // of the value, bytes
	Version *uint64
	Expires time.Time // zero: never
	Existed *bool
	Exists  *bool
	Number  *int64
	// Beside key and value, in a batch only.
	Delete bool
	client.PutOptions
}

// appendRecord appends the record as one line. Fields stand in a fixed order, so
// that equal records are equal lines and two exports can be compared with diff.
func appendRecord(dst []byte, r record) []byte {
	dst = appendField(append(dst, '{'), "key", r.Key)
	// Key and value come first, where a person looks. Fields that are not known are
	// left out, because a reader could take null for a value.
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

// appendField appends "name":"text", or "name_b64":"…" where b is no text.
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

// parseRecord reads one line. It refuses everything that it would otherwise have to
// guess: unknown, missing or repeated names, both forms at once, text that is no
// UTF-8. encoding/json forgives all of that (it takes the last of two, and replaces
// bad text by other text), so the object is read token by token.
func parseRecord(text []byte) (record, error) { return parseLine(text, false) }

// parseLine is parseRecord, or reads a line of a batch, which may also delete a key
// or name conditions. Import refuses those: it would have to ignore them.
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
	// fields has each name that was seen, so that one that comes twice is noticed,
	// and the bytes of those that are keys or values.
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
	// Two records on one line are two lines that were joined by mistake.
	if _, err := dec.Token(); err != io.EOF {
		return record{}, errors.New("has something behind the record")
	}
	var err error
	if r.Key, err = oneOf(fields, "key"); err != nil {
		return record{}, err
	}
	// A delete with a value is half of a put, and the program must not guess which
	// half was meant.
	if r.Delete {
		_, asText := fields["value"]
		_, asRaw := fields["value_b64"]
		if asText || asRaw || r.TTL != 0 || r.IfAbsent {
			return record{}, errors.New("deletes a key and has a value, ttl or if_absent for it")
		}
	} else if r.Value, err = oneOf(fields, "value"); err != nil {
		return record{}, err
	}
	// The server would refuse these, too, but without the number of the line.
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
		return fmt.Errorf("has %s twice", cli.Quote([]byte(name)))
	}
	// The further names of a batch come first; the others are the same in both.
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
		return fmt.Errorf("has the unknown name %s", cli.Quote([]byte(name)))
	}
	// A pointer tells null from an empty text.
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

// parseTerm reads a field that only a line of a batch may have; known tells if name
// is one. A value of the wrong type is refused and not converted: "delete":"yes" is
// no answer to whether a key is to be deleted.
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
	// The raw value is kept for the error, which shows it as it was written.
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		return true, jsonReason(err)
	}
	if string(raw) == "null" || json.Unmarshal(raw, into) != nil {
		return true, fmt.Errorf("has %s as %s", cli.Quote(raw), name)
	}
	// 0 would be no condition at all.
	if into == &r.IfVersion && r.IfVersion == 0 {
		return true, errors.New("has 0 as if_version, which no key has")
	}
	if into == &ttl {
		if r.TTL, err = parseTTL(ttl); err != nil {
			return true, fmt.Errorf("has the ttl %s: %w", cli.Quote([]byte(ttl)), err)
		}
	}
	return true, nil
}

// oneOf returns the field that stands there as text or in base64, never both and
// never none.
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

// jsonReason says what is wrong with a line in terms of the line: encoding/json
// speaks of Go types and of offsets that no editor shows.
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

// loneSurrogate reports a \uD800 to \uDFFF escape without its other half. JSON
// allows it, but it stands for no character and so for no bytes; encoding/json
// would put U+FFFD in its place, and the key would be another one.
func loneSurrogate(text []byte) bool {
	high := false // the escape before this one was the first half
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			if high {
				return true
			}
			continue
		}
		half := 0 // 1: the escape is a first half, 2: a second one
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
		// Past the escape: what follows a backslash is no beginning of another one.
		if half != 0 {
			i += 5
		} else {
			i++
		}
	}
	return high
}

// maxLine bounds a line: a key and a value of full size in which every byte is
// written as \u00xx, and the names around them. A stream without a newline must not
// fill the memory.
const maxLine = 6*(layout.MaxKeyLen+layout.MaxValueLen) + 1024

// readLine reads one line of bounded length, without its newline, or with \r\n as
// editors of Windows write it. It returns io.EOF when there is none left. The slice
// is the caller's.
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

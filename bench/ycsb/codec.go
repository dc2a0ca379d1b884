package main

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
)

// A record of YCSB has fields; here they are one value: for each field, in order
// of names, the length of its name, the name, the length of its content and the
// content, the lengths as uvarints.

var errRecord = errors.New("the value is no record of this program")

// appendRecord appends the encoding of a record.
func appendRecord(dst []byte, fields map[string][]byte) []byte {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		dst = append(binary.AppendUvarint(dst, uint64(len(name))), name...)
		dst = append(binary.AppendUvarint(dst, uint64(len(fields[name]))), fields[name]...)
	}
	return dst
}

// parseRecord reads a record and keeps the fields that the caller names, or all
// of them if it names none. The contents are parts of value.
func parseRecord(value []byte, wanted []string) (map[string][]byte, error) {
	fields := make(map[string][]byte)
	next := func() ([]byte, bool) {
		n, used := binary.Uvarint(value)
		if used <= 0 || n > uint64(len(value)-used) {
			return nil, false
		}
		part := value[used : used+int(n)]
		value = value[used+int(n):]
		return part, true
	}
	for len(value) > 0 {
		name, ok := next()
		if !ok {
			return nil, errRecord
		}
		content, ok := next()
		if !ok {
			return nil, errRecord
		}
		if len(wanted) == 0 || slices.Contains(wanted, string(name)) {
			fields[string(name)] = content
		}
	}
	return fields, nil
}

package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// A rule is what the tags of a field say of its values. Values in tags are written as
// in variables and flags, and are parsed by the same functions.
//
//	default:"16MiB"          the value where nothing is said; no tag: zero, "" or an empty list
//	range:"1MiB..1GiB"       the least and the most value, both included
//	or:"0"                   one value outside of the range, with a meaning of its own
//	multiple:"1MiB"          sizes are multiples of it
//	oneof:"lan,fast,wan"     the only texts
//
// What depends on another key is checked by code, in validate.go.
type rule struct {
	def         string   // "": no tag
	choices     []string // nil: any text
	least, most any      // of the field's type; nil: not bounded
	or          any      // nil: none
	multiple    Size     // 0: none
}

// ruleOf reads the tags of a field. A tag that is wrong panics in the first test
// that runs.
func ruleOf(tag reflect.StructTag, kind Kind) (r rule) {
	value := func(text string) any {
		v, err := parse(kind, text)
		if err != nil {
			panic(fmt.Sprintf("config: tags %s: %v", tag, err))
		}
		return v
	}
	r.def = tag.Get("default")
	if r.def != "" {
		value(r.def)
	}
	if text := tag.Get("range"); text != "" {
		least, most, _ := strings.Cut(text, "..")
		r.least, r.most = value(least), value(most)
	}
	if text := tag.Get("or"); text != "" {
		r.or = value(text)
	}
	if text := tag.Get("multiple"); text != "" {
		r.multiple = value(text).(Size)
	}
	if text := tag.Get("oneof"); text != "" {
		r.choices = strings.Split(text, ",")
	}
	return r
}

// check returns what is wrong with a value of the field's type; "" if nothing is.
func (r rule) check(v any) string {
	switch size, _ := v.(Size); {
	case r.or != nil && v == r.or:
		return ""
	case r.least != nil && (amount(v) < amount(r.least) || amount(v) > amount(r.most)):
		return fmt.Sprintf("%v is out of range: %v to %v", v, r.least, r.most)
	case r.multiple != 0 && size%r.multiple != 0:
		return fmt.Sprintf("%s is not a multiple of %s", size, r.multiple)
	}
	if text, _ := v.(string); r.choices != nil && !slices.Contains(r.choices, text) {
		hint := ""
		if n := Nearest(text, r.choices); n != "" {
			hint = fmt.Sprintf("; did you mean %q?", n)
		}
		return fmt.Sprintf("%s is not one of %s%s", quote(text), strings.Join(r.choices, ", "), hint)
	}
	return ""
}

// amount is a number, a size or a duration as a plain number. No parser returns a size
// that an int64 does not hold.
func amount(v any) int64 {
	n := reflect.ValueOf(v)
	if n.CanUint() {
		return int64(n.Uint())
	}
	return n.Int()
}

// Choices lists what a key takes if that is one of a few names, else nil. The
// completion of shells uses this list, too.
func Choices(key string) []string {
	for _, k := range Keys() {
		if k.Name == key {
			return k.rule.choices
		}
	}
	return nil
}

// Bounds are the least and the most value that a key takes, both nil if its values are
// not bounded by themselves. Off, auto and the like stand outside of them.
func (k Key) Bounds() (least, most any) { return k.rule.least, k.rule.most }

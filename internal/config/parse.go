package config

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// decodeHook is the mapstructure hook through which every value passes. It is
// the whole decoder: it either returns a value of exactly the target type or an
// error, so none of mapstructure's own conversions (which take a float for an
// integer even in strict mode) is ever reached.
func decodeHook(from, to reflect.Value) (any, error) {
	if to.Kind() == reflect.Struct {
		return from.Interface(), nil // the Config itself
	}
	if !from.IsValid() {
		return nil, fmt.Errorf("has no value")
	}
	return parse(kindOf(to.Type()), from.Interface())
}

// parse turns a raw value into the Go value of its kind. Text comes from
// flags and variables for every kind; the other types come from YAML.
func parse(kind Kind, in any) (any, error) {
	switch kind {
	case KindText:
		if s, ok := in.(string); ok {
			return s, nil
		}
		return nil, fmt.Errorf("want text, got %s; put it in quotes if that is what you mean", describe(in))
	case KindNumber:
		return parseNumber(in)
	case KindSwitch:
		switch in {
		case true, "true":
			return true, nil
		case false, "false":
			return false, nil
		}
		return nil, fmt.Errorf("want true or false, got %s", describe(in))
	case KindDuration:
		return parseDuration(in)
	case KindTerm:
		return parseTerm(in)
	case KindSize:
		switch v := in.(type) {
		case Size:
			return v, nil
		case string:
			return ParseSize(v)
		case int:
			if v == 0 {
				return Size(0), nil
			}
		}
		return nil, fmt.Errorf("want %s, got %s", sizeGrammar, describe(in))
	case KindList:
		return parseList(in)
	case KindSpin:
		return parseSpin(in)
	case KindCPUs:
		return parseCPUs(in)
	}
	panic("config: kind " + kind.String() + " has no parser")
}

func parseNumber(in any) (any, error) {
	switch v := in.(type) {
	case int:
		return v, nil
	case string:
		digits, minus := strings.CutPrefix(v, "-")
		n, err := parseDigits(digits)
		switch {
		case err != nil || n > math.MaxInt:
		case minus:
			return -int(n), nil
		default:
			return int(n), nil
		}
	}
	return nil, fmt.Errorf("want a whole number, got %s", describe(in))
}

// durationGrammar is what every refusal of a duration shows.
const durationGrammar = "a number with a unit: ns, us, ms, s, m or h, as in 2s or 1.5ms"

func parseDuration(in any) (any, error) {
	switch v := in.(type) {
	case time.Duration:
		return v, nil
	case string:
		if d, err := time.ParseDuration(v); err == nil {
			return d, nil
		}
	}
	return nil, fmt.Errorf("want %s, got %s", durationGrammar, describe(in))
}

// A Term is a duration that can be turned off; its zero value says so.
type Term time.Duration

// String writes it so that it can be read again.
func (t Term) String() string {
	if t == 0 {
		return "off"
	}
	return time.Duration(t).String()
}

func parseTerm(in any) (any, error) {
	switch v := in.(type) {
	case Term:
		return v, nil
	case string:
		if v == "off" {
			return Term(0), nil
		}
		// "0s" would turn something off, although the user has not said "off".
		if d, err := time.ParseDuration(v); err == nil && d != 0 {
			return Term(d), nil
		}
	}
	return nil, fmt.Errorf("want off, or %s, got %s", durationGrammar, describe(in))
}

// maxList bounds lists: no setting has a use for more.
const maxList = 64

func parseList(in any) (any, error) {
	out := []string{} // never nil, which would read as "not said"
	switch v := in.(type) {
	case []string:
		out = append(out, v...)
	case []any:
		for _, item := range v {
			s, ok := item.(string)
			if !ok {
				return nil, fmt.Errorf("want a list of texts, got %s in it; put it in quotes", describe(item))
			}
			out = append(out, s)
		}
	case string:
		if v == "" {
			break // an empty list
		}
		for s := range strings.SplitSeq(v, ",") {
			out = append(out, strings.TrimSpace(s))
		}
	default:
		return nil, fmt.Errorf("want a list of texts, got %s", describe(in))
	}
	if len(out) > maxList {
		return nil, fmt.Errorf("has %d entries, at most %d are allowed", len(out), maxList)
	}
	return out, nil
}

// describe names a value of a wrong type, with its type in YAML's words.
func describe(in any) string {
	switch v := in.(type) {
	case nil:
		return "nothing"
	case string:
		return quote(v)
	case bool:
		return strconv.FormatBool(v)
	case int, int64, uint64:
		return fmt.Sprintf("the number %d", v)
	case float64:
		return "the number " + strconv.FormatFloat(v, 'g', -1, 64)
	case []any:
		return "a list"
	case time.Time:
		return "a date"
	}
	return "a section"
}

// format writes a value so that a file with it is read back as the same value.
func format(v any) string {
	switch v := v.(type) {
	case string:
		return formatText(v)
	case []string:
		items := make([]string, len(v))
		for i, s := range v {
			items[i] = strconv.Quote(s)
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	return fmt.Sprint(v)
}

// formatText quotes a text that YAML would otherwise read as something else.
// Plain words and addresses, which is nearly every value, stay as people write
// them.
func formatText(s string) string {
	plain := s != ""
	for i, r := range s {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		digit := r >= '0' && r <= '9'
		plain = plain && (letter || i > 0 && (digit || strings.ContainsRune("_-/.", r)))
	}
	switch strings.ToLower(s) {
	case "true", "false", "null", "yes", "no", "on", "y", "n":
		plain = false
	}
	if plain {
		return s
	}
	return strconv.Quote(s)
}

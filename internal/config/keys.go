package config

import (
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
)

// Scope says which program a key is for.
type Scope uint8

const (
	// ForServer: kvserver reads the key.
	ForServer Scope = 1 << iota
	// ForClient: kvclient reads the key.
	ForClient
)

// String names the programs.
func (s Scope) String() string {
	switch s {
	case ForServer:
		return "kvserver"
	case ForClient:
		return "kvclient"
	case ForServer | ForClient:
		return "kvserver and kvclient"
	}
	return "nobody"
}

// Kind is the type of a value as people write it.
type Kind uint8

const (
	KindText     Kind = iota // any text
	KindNumber               // a whole number
	KindSwitch               // true or false
	KindDuration             // 2s, 10ms: always with a unit
	KindSize                 // 64MiB, 64MB: always with a unit
	KindList                 // several texts; in variables and flags separated by commas
	KindTerm                 // a duration, or off
	KindSpin                 // a duration, or auto
	KindCPUs                 // numbers of processors and ranges of them, separated by commas
)

// String is the word that help texts use for a value of this kind.
func (k Kind) String() string {
	return [...]string{"text", "number", "switch", "duration", "size", "list", "duration|off", "duration|auto", "cpus"}[k]
}

// EnvPrefix begins the name of every variable of ours.
const EnvPrefix = "RDMAKV_"

// EnvFile names the configuration file, as --config does. It is no key: a
// file cannot say which file to read.
const EnvFile = EnvPrefix + "CONFIG"

// A Key describes one setting.
type Key struct {
	Name  string // as in config.yaml: data_dir; in a section: gossip.bind
	Flag  string // without the dashes: data-dir
	Env   string // RDMAKV_DATA_DIR
	Kind  Kind
	Scope Scope
	Usage string // one line of help
	field []int  // path of indexes in Config
	rule  rule   // which values it takes, and its default
}

// Section is the part of the name before the dot: gossip; "" at the top.
func (k Key) Section() string {
	section, _, ok := strings.Cut(k.Name, ".")
	if !ok {
		return ""
	}
	return section
}

// Expert reports whether the key is one of the section expert, which help texts leave
// out.
func (k Key) Expert() bool { return k.Section() == "expert" }

// dashed turns a key into a flag, and underlined into a variable.
var (
	dashed     = strings.NewReplacer("_", "-", ".", "-")
	underlined = strings.NewReplacer(".", "_")
)

// Keys lists every setting in the order of Config, derived from its tags. The
// caller owns the list.
func Keys() []Key { return slices.Clone(allKeys()) }

// allKeys reads the tags once, when the keys are first asked for.
var allKeys = sync.OnceValue(func() []Key { return keysOf(reflect.TypeFor[Config](), "", "", nil) })

// keysOf lists the settings of a struct. A struct in it is a section, whose
// keys have its name before theirs, and its scope if they have none of their own.
func keysOf(t reflect.Type, prefix, scope string, path []int) []Key {
	keys := make([]Key, 0, t.NumField())
	for i := range t.NumField() {
		f := t.Field(i)
		name, at := prefix+f.Tag.Get("mapstructure"), append(slices.Clone(path), i)
		scope := scope
		if own := f.Tag.Get("scope"); own != "" {
			scope = own
		}
		if f.Type.Kind() == reflect.Struct {
			keys = append(keys, keysOf(f.Type, name+".", scope, at)...)
			continue
		}
		k := Key{
			Name:  name,
			Flag:  flagOf(name),
			Env:   envOf(name),
			Kind:  kindOf(f.Type),
			Usage: f.Tag.Get("usage"),
			field: at,
		}
		k.rule = ruleOf(f.Tag, k.Kind)
		if flag := f.Tag.Get("flag"); flag != "" {
			k.Flag = flag
		}
		switch scope {
		case "server":
			k.Scope = ForServer
		case "client":
			k.Scope = ForClient
		default:
			k.Scope = ForServer | ForClient
		}
		keys = append(keys, k)
	}
	return keys
}

// kindOf maps the type of a Config field to its kind. A new field of another
// type panics in the first test that runs, so that it cannot be missed.
func kindOf(t reflect.Type) Kind {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return KindDuration
	case reflect.TypeFor[Term]():
		return KindTerm
	case reflect.TypeFor[Spin]():
		return KindSpin
	case reflect.TypeFor[CPUs]():
		return KindCPUs
	case reflect.TypeFor[Size]():
		return KindSize
	case reflect.TypeFor[string]():
		return KindText
	case reflect.TypeFor[int]():
		return KindNumber
	case reflect.TypeFor[bool]():
		return KindSwitch
	case reflect.TypeFor[[]string]():
		return KindList
	}
	panic("config: no kind for a field of type " + t.String())
}

// value returns the setting's value in c as it is written in a file.
func (k Key) value(c *Config) string {
	return format(k.raw(c))
}

// raw returns the setting's value in c as the Go value it is.
func (k Key) raw(c *Config) any {
	return reflect.ValueOf(c).Elem().FieldByIndex(k.field).Interface()
}

package config

import (
	"reflect"
	"strings"
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
)

// String is the word that help texts use for a value of this kind.
func (k Kind) String() string {
	return [...]string{"text", "number", "switch", "duration", "size", "list", "duration|off"}[k]
}

// EnvPrefix begins the name of every variable of ours.
const EnvPrefix = "RDMAKV_"

// EnvFile names the configuration file, as --config does. It is no key: a
// file cannot say which file to read.
const EnvFile = EnvPrefix + "CONFIG"

// A Key describes one setting.
type Key struct {
	Name  string // as in config.yaml: data_dir
	Flag  string // without the dashes: data-dir
	Env   string // RDMAKV_DATA_DIR
	Kind  Kind
	Scope Scope
	Usage string // one line of help
	field int    // index in Config
}

// Keys lists every setting in the order of Config, derived from its tags.
func Keys() []Key {
	t := reflect.TypeFor[Config]()
	keys := make([]Key, 0, t.NumField())
	for i := range t.NumField() {
		f := t.Field(i)
		name := f.Tag.Get("mapstructure")
		k := Key{
			Name:  name,
			Flag:  strings.ReplaceAll(name, "_", "-"),
			Env:   EnvPrefix + strings.ToUpper(name),
			Kind:  kindOf(f.Type),
			Usage: f.Tag.Get("usage"),
			field: i,
		}
		if flag := f.Tag.Get("flag"); flag != "" {
			k.Flag = flag
		}
		switch f.Tag.Get("scope") {
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
// type panics in the first test that runs, which is where it should be seen.
func kindOf(t reflect.Type) Kind {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return KindDuration
	case reflect.TypeFor[Term]():
		return KindTerm
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
	return reflect.ValueOf(c).Elem().Field(k.field).Interface()
}

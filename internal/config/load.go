package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// Options says where Load looks.
type Options struct {
	// Scope is the program that loads: its flags and search path.
	Scope Scope
	// File is the configuration file; it must exist. Empty: the variable
	// RDMAKV_CONFIG, then the first file of the search path that exists, then
	// none.
	File string
	// Search replaces the search path; nil means the usual one. Tests use it.
	Search []string
	// Flags are the program's flags as AddFlags made them; nil means none.
	Flags *pflag.FlagSet
	// Env is the environment as os.Environ gives it.
	Env []string
}

// Loaded is a configuration and where it came from.
type Loaded struct {
	Config
	// File is the file that was read; empty if none.
	File string
	// Sources says for each key where its value came from.
	Sources map[string]string

	// These are the secrets that the environment holds.
	secret, gossipKey hidden
}

// Load reads all layers, lays them over each other and validates the result.
// Its error is of type Faults and holds everything that is wrong.
func Load(opt Options) (*Loaded, error) {
	l := &Loaded{Config: Default(), Sources: make(map[string]string)}
	v := viper.New()
	for _, k := range Keys() {
		// Every key needs a default: viper forgets keys that it has none for.
		v.SetDefault(k.Name, k.raw(&l.Config))
		l.Sources[k.Name] = "default"
	}
	faults := l.layFile(v, opt)
	faults = append(faults, l.layEnv(v, opt.Env)...)
	l.takeSecrets(opt.Env)
	l.layFlags(v, opt.Flags)

	// The value of a key that is already at fault is not decoded again.
	bad := make(map[string]bool)
	for _, f := range faults {
		bad[f.Key] = true
	}
	err := v.UnmarshalExact(&l.Config, func(dc *mapstructure.DecoderConfig) {
		dc.WeaklyTypedInput = false
		dc.ErrorUnused = true
		dc.ZeroFields = true // a list replaces the default, it is not laid over it
		dc.DecodeHook = mapstructure.DecodeHookFuncValue(decodeHook)
	})
	for _, f := range l.decodeFaults(err) {
		if !bad[f.Key] {
			faults = append(faults, f)
			bad[f.Key] = true
		}
	}
	for _, f := range l.Config.faults() {
		if !bad[f.Key] {
			f.Source = l.Sources[f.Key]
			faults = append(faults, f)
		}
	}
	// While the cluster itself is not configured correctly, its protection is not
	// checked.
	if opt.Scope&ForServer != 0 && !faults.about("gossip.bind") {
		for _, f := range l.openDoors() {
			if !bad[f.Key] {
				faults = append(faults, f)
			}
		}
	}
	return l, faults.orNil()
}

// layFile finds, checks and reads the configuration file.
func (l *Loaded) layFile(v *viper.Viper, opt Options) Faults {
	path, must := opt.File, opt.File != ""
	if path == "" {
		path = lookup(opt.Env, EnvFile)
		must = path != ""
	}
	search := []string{path}
	if !must {
		search = opt.Search
		if search == nil {
			search = searchFiles()
		}
	}
	for _, path := range search {
		near := !must && !filepath.IsAbs(path) // found, in the working directory
		if abs, err := filepath.Abs(path); err == nil {
			path = abs // what is printed must name the file wherever it is read
		}
		data, err := readFile(path)
		if errors.Is(err, fs.ErrNotExist) && !must {
			continue
		}
		if err == nil && near {
			err = checkOwner(path)
		}
		if err == nil && !must {
			err = checkWritable(path)
		}
		if err == nil {
			err = checkText(data)
		}
		if err != nil {
			return Faults{{Source: path, Reason: err.Error()}}
		}
		l.File = path
		lines, faults := checkTree(path, data)
		if len(faults) > 0 {
			return faults
		}
		v.SetConfigType("yaml")
		if err := v.ReadConfig(bytes.NewReader(data)); err != nil {
			return Faults{{Source: path, Reason: oneLine(err)}}
		}
		for key, line := range lines {
			l.Sources[key] = fmt.Sprintf("%s:%d", path, line)
		}
		return nil
	}
	return nil
}

// layEnv lays our variables over the file and refuses unknown ones with our
// prefix. A variable that is set but empty is an empty text, as with flags: that
// is how an address is turned off.
func (l *Loaded) layEnv(v *viper.Viper, env []string) (faults Faults) {
	byEnv := map[string]Key{}
	names := []string{EnvFile, EnvSecret, EnvGossipKey}
	for _, k := range Keys() {
		byEnv[k.Env] = k
		names = append(names, k.Env)
	}
	layer := map[string]any{}
	for _, pair := range env {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, EnvPrefix) || name == EnvFile {
			continue
		}
		if name == EnvSecret || name == EnvGossipKey {
			continue // no keys: see takeSecrets
		}
		k, ok := byEnv[name]
		if !ok {
			faults = append(faults, Fault{Source: "environment",
				Reason: "unknown variable " + quote(name) + unknown(name, names)})
			continue
		}
		if section := k.Section(); section == "" {
			layer[k.Name] = value
		} else {
			m, _ := layer[section].(map[string]any)
			if m == nil {
				m = make(map[string]any)
				layer[section] = m
			}
			m[strings.TrimPrefix(k.Name, section+".")] = value
		}
		l.Sources[k.Name] = k.Env
	}
	if err := v.MergeConfigMap(layer); err != nil {
		faults = append(faults, Fault{Source: "environment", Reason: oneLine(err)})
	}
	return faults
}

// layFlags lays the flags that were given over everything else.
func (l *Loaded) layFlags(v *viper.Viper, flags *pflag.FlagSet) {
	if flags == nil {
		return
	}
	for _, k := range Keys() {
		if f := flags.Lookup(k.Flag); f != nil && f.Changed {
			v.Set(k.Name, f.Value.String())
			l.Sources[k.Name] = "--" + k.Flag
		}
	}
}

// decodeFaults takes the decoder's error apart, into one fault per key.
func (l *Loaded) decodeFaults(err error) (faults Faults) {
	if err == nil {
		return nil
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range many.Unwrap() {
			faults = append(faults, l.decodeFaults(e)...)
		}
		return faults
	}
	if one, ok := err.(*mapstructure.DecodeError); ok && l.Sources[one.Name()] != "" {
		return Faults{{l.Sources[one.Name()], one.Name(), rootCause(one).Error()}}
	}
	if inner := errors.Unwrap(err); inner != nil {
		return l.decodeFaults(inner)
	}
	return Faults{{Reason: oneLine(err)}}
}

// rootCause is the innermost error: what the hook said.
func rootCause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// lookup finds a variable in an environment; the last one counts.
func lookup(env []string, name string) (value string) {
	for _, pair := range env {
		if n, v, ok := strings.Cut(pair, "="); ok && n == name {
			value = v
		}
	}
	return value
}

func keyNames() []string {
	var names []string
	for _, k := range Keys() {
		names = append(names, k.Name)
	}
	return names
}

// sectionNames are the names before the dots.
func sectionNames() []string {
	var names []string
	for _, k := range Keys() {
		if s := k.Section(); s != "" && !contains(names, s) {
			names = append(names, s)
		}
	}
	return names
}

func contains(names []string, name string) bool { return slices.Contains(names, name) }

// Package config turns config.yaml, RDMAKV_ variables and flags into one
// typed, validated Config. Only cmd/ uses it: everything below is handed
// plain values.
//
// Four layers, each over the one before it:
//
//	default  <  config.yaml  <  RDMAKV_ variable  <  flag
//
// The layers meet in viper, but viper is kept on a short lead, because by
// itself it forgives too much: it lower-cases keys so that `listen` and
// `Listen` silently overwrite each other, it decodes `timeout: 5` as five
// nanoseconds and 1.9 as the integer 1, and it never looks at variables whose
// names it does not know. So the file is first read as a YAML tree (file.go),
// where each key has a line number and a misspelt one can be refused with the
// nearest right name; decoding goes through one strict hook (parse.go); and
// the environment is searched for unknown names (load.go).
//
// Every fault is reported, not just the first, each with the place where the
// value came from, the key, and what is allowed there.
package config

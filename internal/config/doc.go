// Package config turns config.yaml, RDMAKV_ variables and flags into one typed,
// validated Config. Only cmd/ uses it: everything below is given plain values.
//
// There are four layers, each over the one before it:
//
//	default  <  config.yaml  <  RDMAKV_ variable  <  flag
//
// The layers meet in viper, but the package checks what viper by itself
// forgives: viper lower-cases keys so that `listen` and `Listen` silently
// overwrite each other, it decodes `timeout: 5` as five nanoseconds and 1.9 as
// the integer 1, and it never looks at variables whose names it does not know.
// So the file is first read as a YAML tree (file.go), where each key has a line
// number and a misspelt one can be refused with the nearest right name;
// decoding goes through one strict hook (parse.go); and the environment is
// searched for unknown names (load.go).
//
// Every fault is reported, not just the first, each with the place where the
// value came from, the key, and what is allowed there.
//
// config.go is the list of settings; tags on its fields say what a key is called, its
// default and the values that it takes (rules.go). validate.go, cluster.go, waiting.go
// and tls.go check what depends on several keys or has a form of its own. tenants.go
// reads the tenants file.
package config

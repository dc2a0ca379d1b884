//go:build race

package simcluster

const underRace = true

// Package forms has constants for TestFormsHaveLevels.
package forms

import "elsewhere"

// A Kind is a number.
type Kind uint16

// A Name is a word.
type Name string

const (
	First Kind = iota + 1
	second
)

const (
	Last           = second
	mapFormat      = 3
	Word      Name = "a word"
	Other          = elsewhere.Kind
)

// Package errcode is the one table of what can go wrong and how a program or a
// person tells it apart: a stable code, the exit status it means, and an error
// type that says what was tried and what to do next.
//
// It owns every E_ code of the product. Nothing else may invent one, and every
// code has a page in docs/errors.
package errcode

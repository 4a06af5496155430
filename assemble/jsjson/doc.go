// Package jsjson reads and writes JSON the way an ECMAScript engine does, byte
// for byte. It is the one JSON parser of traces: events, payments and receipts
// all go through it.
//
// It owns the rules of the trace contract, section 8: key order, repeated
// members, number forms, escapes, ill-formed UTF-8 and the comparison of texts
// by UTF-16 code unit. Text is held as WTF-8: UTF-8 in which a lone surrogate
// stands as its own three bytes, so that nothing an ECMAScript string can hold
// is lost on the way.
//
// A document is a tape, not a tree: [Doc.Parse] fills a slice of nodes that the
// next Parse uses again, and a [Node] is an index into it. Nothing is allocated
// per value and nothing recurses while reading. What the tape does not hold,
// decoded text and order of members, is worked out when it is asked for. Text
// whose shape is known beforehand can be read with a [Cursor] instead.
//
// It must never accept what JSON.parse refuses or refuse what it accepts (up to
// [MaxDepth]), never read or write files, and never change the bytes it is
// given.
package jsjson

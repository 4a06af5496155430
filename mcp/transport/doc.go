// Package transport is the HTTP surface: one endpoint with an http.Handler
// behind it, and the limits, the checks and the token verification around it
// (transport contract, section 4).
//
// It owns where a server may be bound, who may speak to it and how much: the
// bind policy, Host and Origin, bearer tokens, buckets, ceilings and deadlines,
// and the answers it gives itself. It works for any handler that takes one
// JSON-RPC message a POST and answers it at once; the handler finds who asks by
// [Subject].
//
// It must never dial, fetch a key or issue a token, never log or pass on a
// token, never read the environment or a clock of its own, and never know what
// a message asks for: of a message it reads no more than that it is one.
package transport

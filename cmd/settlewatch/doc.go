// Command settlewatch runs beside an agent that pays: it serves the agent's own
// payment receipts over MCP, and shows the same to a person.
//
// It is the composition root. It owns flags, wiring, exit codes and what a
// terminal shows; it is the only package that reads the environment and the wall
// clock. Each command is one file: it takes a struct of options, asks the
// packages below, and renders. It must never hold a rule of the trace or guard
// contract itself. What needs no flag, no terminal and no wiring has a room below:
// the hosts of servers, the runner of CHP, the crash test and its buyers, the inbox
// and the pages.
//
// Rules of the output:
//
//   - stdout carries the answer and nothing else. It is written when the
//     command has succeeded; with --json a failure leaves it empty.
//   - stderr carries notes, progress and the error. With --json the error is
//     {"error": {"code", "message", "hint"}} on one line.
//   - What strangers wrote passes plain.Clean on its way to a table or a
//     sentence. Only `receipt --json` and `build --json` are byte-exact.
//   - Colour and progress bars appear on a terminal only; NO_COLOR turns colour
//     off. Nothing is said by colour alone.
//   - A table or paragraph is laid out to the width of a terminal, and to none
//     elsewhere. An id is cut only to what can be typed back.
//   - What a person decides by (a review, a verdict) is never cut, on a screen of
//     any width. A command to be copied stands whole on a line of its own.
//   - A question or a passphrase is asked on stderr, and only where stdin is a
//     terminal; a passphrase never comes from a flag, the environment or a pipe.
//   - A full screen (review by itself, watch) needs a terminal on both sides. It is
//     drawn by the room inbox; whatever else is told meanwhile waits until it is left.
//   - Exit status: 0 answered, 1 could not answer, 2 bad usage or configuration,
//     3 damage or unsoundness found, 130 interrupted. check and review wait: 10 a
//     person has to decide, 20 no.
package main

// Package inbox is the full-screen inbox of the person who decides, and the
// read-only overview of the same things.
//
// It owns what is on the screen and what a key does: pages, their layout down to a
// screen of 40 by 16, what has been read, and the steps between a key and an act.
// Whatever it shows and does it asks of a [Desk]; it knows neither guard nor index.
//
// Rules of the screen:
//
//   - No fact is cut. What does not fit goes on below itself and on further pages,
//     and the first line of a page says how many there are.
//   - A payment is approved in three steps: every line about it was on the screen,
//     the key a, and the word yes typed below what is about to be paid and to whom.
//     What is tightened (a rejection, a freeze) takes a key and enter.
//   - What is decided is what was shown: a review that expired, was decided
//     elsewhere, or opened anew while it was on the screen, is not decided here.
//   - Every text passes plain.Clean on its way to the screen, and a line is laid out
//     by its columns, not its characters.
//   - A passphrase is on no screen, in no message, and kept nowhere once it was tried.
//
// It must never decide by itself: no timer, no default and no pasted text acts.
package inbox

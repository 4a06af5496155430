// Package crash tries whether money can get past a cap: it starts buyers, processes
// of this program that ask the guard before they pay, does to them and to the guard
// what a bad day does, and adds up what was paid.
//
// It owns the scenarios, the processes of the buyers, the protocol that it speaks with
// them ([Order], [Said]), the sum of what they paid, and the measure of a scenario
// ([Outcome]). A fault that did not happen is a failure too: it has shown nothing.
//
// Its sum must never share code with what the guard counts by, neither the index, nor
// the reading of a line, nor a number: a mistake that both made would be seen by
// neither. So it imports no room of the trace or the guard, and knows a buyer only by
// what that says and by the run file it leaves.
//
// It must never be a buyer itself, decide what a terminal shows, read the clock or the
// environment, or touch anything outside the directory it is given.
package crash

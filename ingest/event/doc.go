// Package event turns one line of a run file into an event or a fault, and puts
// events in order.
//
// It owns the envelope of the trace contract, section 3, the order of section
// 5.1, and the reading of times. What stands in a payload is not its concern.
//
// It must never look at more than one line, skip a line (what is blank or torn
// is the caller's decision), or call a line a fault for anything but the policy
// of section 3: a strange time, a strange role or a repeated key is no fault.
package event

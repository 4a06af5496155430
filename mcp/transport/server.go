package transport

// Answer is what became of a request, for whoever counts.
type Answer struct {
	Status int    // HTTP status; 0 for a connection that was closed at a ceiling
	Code   string // the error code of an answer of this package, "" for the handler's own
}

// Server is a bound server.
type Server struct{}

package transport

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// Whoever runs a server sees why clients are turned away, and nothing they sent.
func TestARefusalBeforeTheMessageHasALine(t *testing.T) {
	const secret = "top-secret"
	token := "Authorization: Bearer " + secret
	for _, c := range []struct {
		name   string
		config func(testing.TB) Config
		send   func(*started)
		want   string
	}{
		{"another page", nil, func(s *started) { s.send(request{headers: []string{"Origin: https://" + secret + ".example"}}) }, "status=403 code=origin_not_allowed"},
		{"another host", nil, func(s *started) { s.send(request{host: secret + ".example"}) }, "status=403 code=host_not_allowed"},
		{"another path", nil, func(s *started) { s.send(request{path: "/" + secret}) }, "status=404 code=not_found"},
		{"another method", nil, func(s *started) { s.send(request{method: "PUT"}) }, "status=405 code=method_not_allowed"},
		{"no token", withSecret, func(s *started) { s.send(request{}) }, "status=401 code=unauthorized"},
		{"a token that is none", withSecret, func(s *started) { s.send(request{headers: []string{token}}) }, "status=401 code=invalid_token"},
		{"another media type", nil, func(s *started) {
			s.send(request{bare: true, headers: []string{"Content-Type: text/" + secret, "Content-Length: 0"}})
		}, "status=415 code=unsupported_media_type"},
		{"too large a body", nil, func(s *started) {
			s.send(request{bare: true, headers: []string{"Content-Type: application/json", fmt.Sprintf("Content-Length: %d", 1<<30)}})
		}, "status=413 code=payload_too_large"},
		{"no JSON", nil, func(s *started) { s.send(request{body: "{" + secret}) }, "status=400 code=parse_error"},
		{"no HTTP", nil, func(s *started) { s.raw("GET / HTTP/9.9\r\nHost: "+secret+"\r\n\r\n", "GET") }, "code=bad_request"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := open()
			if c.config != nil {
				config = c.config(t)
			}
			var log quiet
			config.Log = log.log()
			s := start(t, config, echo)
			s.is("what is served", s.send(request{method: "GET", path: "/health"}), 200, "")
			if log.String() != "" {
				t.Fatalf("an answer has a line: %s", log.String())
			}
			c.send(s)
			s.stop()
			text := log.String()
			for _, want := range []string{"level=WARN msg=\"a request was refused\"", c.want, "client=127.0.0.1/32"} {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in %s", want, text)
				}
			}
			if strings.Contains(text, secret) {
				t.Errorf("what was sent is in the log: %s", text)
			}
		})
	}
}

func TestAConnectionTooManyHasALine(t *testing.T) {
	c := open()
	c.MaxConnsPerClient = 1
	var log quiet
	c.Log = log.log()
	s := start(t, c, echo)
	first := s.dial()
	defer func() { _ = first.Close() }()
	second, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Close() }()
	_ = second.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := second.Read(make([]byte, 1)); err == nil {
		t.Fatal("the second one was served")
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "there are too many") || !strings.Contains(text, "client=127.0.0.1/32") {
		t.Errorf("logged was %q", text)
	}
}

// A stranger must not decide how fast a log grows.
func TestRefusalsOfAKindHaveALineAMinute(t *testing.T) {
	now := newClock()
	c := open()
	c.Now, c.Rate = now.now, 1000
	var log quiet
	c.Log = log.log()
	s := start(t, c, echo)
	lines := func() int { return strings.Count(log.String(), "\n") }
	for range 20 {
		s.send(request{path: "/elsewhere"})
	}
	s.send(request{host: "evil.example"})
	if lines() != 2 {
		t.Errorf("%d lines for two kinds: %s", lines(), log.String())
	}
	now.add(refusalsEvery - time.Second)
	s.send(request{path: "/elsewhere"})
	if lines() != 2 {
		t.Errorf("another line within the minute: %s", log.String())
	}
	now.add(time.Second)
	s.send(request{path: "/elsewhere"})
	if text := log.String(); lines() != 3 || !strings.Contains(text, "others_before=20") {
		t.Errorf("after a minute: %s", text)
	}
}

func TestAClockThatIsSetBackSilencesNoRefusal(t *testing.T) {
	var r refusals
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for i, at := range []time.Time{now, now.Add(-time.Hour), now.Add(time.Hour)} {
		if _, ok := r.due(Answer{403, codeOrigin}, at); !ok {
			t.Errorf("no line for refusal %d", i)
		}
	}
}

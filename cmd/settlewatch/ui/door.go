package ui

import (
	"net/http"
	"strings"
)

// doorway answers under names that are no secret, which reviewUrl may hold: an agent
// is told them. It has no data, sets no cookie and does not say where the pages are.
// Whoever comes for a review makes the pages that are open offer it to their person;
// where they are, only the browser they are open in knows.
func (u *UI) doorway() http.Handler {
	mux := http.NewServeMux()
	m := message{Title: "settlewatch", Text: "The pages are open in the browser that the terminal opened. If a link to a review led here, they now offer that review. Press return on the terminal where settlewatch ui runs to open them again."}
	mux.HandleFunc("GET /review/{id}", func(w http.ResponseWriter, r *http.Request) {
		u.knock(r)
		u.message(w, r, http.StatusOK, m)
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { u.message(w, r, http.StatusOK, m) })
	for _, file := range []string{"static/app.css", "static/icon.svg"} {
		mux.HandleFunc("GET /"+file, func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, static, file) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusMisdirectedRequest, "host_not_allowed")
	})
	return mux
}

// knock remembers which review somebody came for, if there is such a one: it is
// offered, never opened.
func (u *UI) knock(r *http.Request) {
	id := r.PathValue("id")
	if len(id) > 64 || !strings.HasPrefix(id, "r-") {
		return
	}
	s, err := u.g.Log().Read(r.Context())
	if err != nil || s.Review(id) == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.knocked != id {
		u.knocked = id
		u.knockedN++
	}
}

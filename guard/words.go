package guard

import (
	"slices"
	"sync"

	"github.com/settlewatch/settlewatch/store"
)

// words remembers the numbers of dictionary words: within one filling of the index a
// word keeps its number. A word that has none yet is asked for again.
type words struct {
	mu         sync.Mutex
	generation int64
	numbers    map[string]int64
}

// maxWords bounds what is remembered; a memory that is full starts again.
const maxWords = 1 << 16

func (w *words) number(v *store.View, at snapshot, text string) (int64, error) {
	w.mu.Lock()
	n := int64(0)
	if w.generation == at.generation {
		n = w.numbers[text]
	}
	w.mu.Unlock()
	if n != 0 || text == "" {
		return n, nil
	}
	n, err := v.Word(text)
	if err != nil || n == 0 {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.generation != at.generation || len(w.numbers) >= maxWords || w.numbers == nil {
		w.generation, w.numbers = at.generation, map[string]int64{}
	}
	w.numbers[text] = n
	return n, nil
}

// all gives the numbers of words, each once, without those that have none.
func (w *words) all(v *store.View, at snapshot, texts []string) ([]int64, error) {
	numbers := []int64{}
	for _, text := range texts {
		n, err := w.number(v, at, text)
		if err != nil {
			return nil, err
		}
		if n != 0 && !slices.Contains(numbers, n) {
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}

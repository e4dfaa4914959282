package tokenizer

// pair is two neighbouring tokens; merge is the token that they become and how early.
type (
	pair  struct{ left, right int32 }
	merge struct{ rank, id int32 }
)

// symbol is a token of a word that is being merged, in a list of those that are left.
type symbol struct {
	id         int32 // -1: swallowed by the symbol before it
	prev, next int32 // -1: none
}

// candidate is a pair that may be merged. It is stale if its tokens have changed since.
type candidate struct {
	rank, at int32
	pair     pair
	id       int32
}

func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.at < d.at
}

// merger merges words, one after the other, in memory that it keeps between them.
type merger struct {
	t       *Tokenizer
	symbols []symbol
	heap    []candidate
}

// maxWord is the longest word in the table of words, so that reading a file with long ones stays cheap.
const maxWord = 64

// longest is the most bytes that merge at one go; offsets in a word are 32 bits.
const longest = 1 << 30

// word appends the tokens of one word: pairs merge lowest rank first, and of equal ones the leftmost, until no pair
// has a merge. O(n log n) for n bytes.
func (m *merger) word(ids []int32, word string) []int32 {
	if id, ok := m.t.words[word]; ok {
		return append(ids, id)
	}
	for len(word) > longest {
		ids = m.word(ids, word[:longest])
		word = word[longest:]
	}
	m.symbols, m.heap = m.symbols[:0], m.heap[:0]
	for i := range len(word) {
		m.symbols = append(m.symbols, symbol{m.t.bytes[word[i]], int32(i) - 1, int32(i) + 1})
	}
	m.symbols[len(word)-1].next = -1
	for i := range len(word) - 1 {
		m.offer(int32(i))
	}
	for len(m.heap) > 0 {
		m.apply(m.pop())
	}
	for i := int32(0); i >= 0; i = m.symbols[i].next {
		ids = append(ids, m.symbols[i].id)
	}
	return ids
}

// offer adds the pair that starts at symbol i to the heap, if it has a merge.
func (m *merger) offer(i int32) {
	if i < 0 || m.symbols[i].next < 0 {
		return
	}
	p := pair{m.symbols[i].id, m.symbols[m.symbols[i].next].id}
	if to, ok := m.t.merges[p]; ok {
		m.push(candidate{to.rank, i, p, to.id})
	}
}

func (m *merger) apply(c candidate) {
	left := &m.symbols[c.at]
	if left.id != c.pair.left || left.next < 0 || m.symbols[left.next].id != c.pair.right {
		return
	}
	right := &m.symbols[left.next]
	left.id, left.next, right.id = c.id, right.next, -1
	if left.next >= 0 {
		m.symbols[left.next].prev = c.at
	}
	m.offer(left.prev)
	m.offer(c.at)
}

func (m *merger) push(c candidate) {
	m.heap = append(m.heap, c)
	h := m.heap
	i := len(h) - 1
	for i > 0 && c.before(h[(i-1)/2]) {
		h[i] = h[(i-1)/2]
		i = (i - 1) / 2
	}
	h[i] = c
}

func (m *merger) pop() candidate {
	h := m.heap
	top, last := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	m.heap = h
	if len(h) == 0 {
		return top
	}
	i := 0
	for child := 1; child < len(h); child = 2*i + 1 {
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(last) {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = last
	return top
}

// readWords fills the table of words that need no merging. Where the file's rules say that a word of the vocabulary
// is its token, that is all of them; else those whose merges lead to that token, so that the table changes the time
// and not the result.
func (t *Tokenizer) readWords(ids map[string]int32) {
	if t.wholeWords {
		t.words = ids
		return
	}
	words := make(map[string]int32, len(ids))
	m := merger{t: t}
	var got []int32
	for word, id := range ids {
		if len(word) > maxWord {
			continue
		}
		if got = m.word(got[:0], word); len(got) == 1 && got[0] == id {
			words[word] = id
		}
	}
	t.words = words
}

// Package chat renders conversations with the Jinja template in a model's file.
//
// A conversation is a stranger's, so every limit on it is checked: bytes that go in, bytes that come out, and its text
// never shows in an error. The same conversation always renders to the same bytes: the clock is not there for a
// template to ask.
//
// A template is part of the model, and trusted as the weights are. It cannot reach files or the network. What would
// end the process and can be told from the source is refused by [Parse]: deep nesting and macros that may recurse; and
// range() is bounded. A template that doubles a string over and over can still exhaust memory, so serve models from
// sources that you trust.
package chat

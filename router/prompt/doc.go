// Package prompt turns messages into token ids with the model's own template and tokenizer.
//
// Only the template may write control tokens such as the end of a turn. A tenant's text that spells one is encoded as
// plain text, so no tenant can end its own turn, open another role's, or forge an answer.
package prompt

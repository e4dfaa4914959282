// Package worker is what a prefill and a decode worker do alike: open a model and its engine, stay attached to the
// host's broker, check tickets, and say what they can do.
//
// # Attachment
//
// [Host.Run] attaches, compares what the broker says with what the engine has (layout, weights, tokenizer, numerics
// class), and publishes a [Link]. When the broker is gone it ends the link's tasks with Unavailable errors, lets the
// engine go of the pool, closes the broker (which unmaps), and attaches anew, backing off up to [MaxBackoff]. A link
// never comes back: what was reserved through it died with it.
//
// # Limits
//
// A worker derives the most tokens of one request from the pool that it is attached to and from the model's context; it
// was told a promise. Under the promise it is not ready, and says both numbers.
//
// The package knows no broker: the worker's own main gives it a [Dial]. A Host's methods may be called concurrently.
package worker

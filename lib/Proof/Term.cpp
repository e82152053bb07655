//===- Term.cpp - The normal form of expressions ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The rules, each of which holds for real numbers (so that a proof is one up to
// rounding):
//   S1  (a + b) + c = a + b + c                 addition is associative
//   S2  a + b = b + a                           and commutative
//   S3  x·a + y·a = (x + y)·a,  0·a = 0         distributivity
//   S4  1·a = a                                 unit
//   P1  (a · b) · c = a · b · c,  a · b = b · a multiplication likewise
//   P2  (x·a) · (y·b) = x·y · (a · b)           numbers come out
//   P3  a · 1 = a,  a · 0 = 0
//   L1  f(x·a, y·b) = x·y · f(a, b)             f is linear in each argument
//   R1  Σᵢ Σⱼ a = Σᵢⱼ a, and likewise for maxima
//   R2  Σᵢ(a + b) = Σᵢ a + Σᵢ b,  Σᵢ a = n·a of an a without the dimension i
//   C1  what was widened only is narrow again without rounding
//   C2  c(x·Σa + y·Σb) = x · c(Σa) + y · c(Σb)  parts of a step's sum may be
//   rounded (M2)
//   M1  Σ(x·a + y·b) = x · Σa + y · Σb          sums over microbatches are
//   linear
//   M2  Σ r(a) = r(Σa), r being f32 by way of another type: what is rounded of
//   a gradient is rounded in parts, by ranks, stages or microbatches. That it
//   is, the claim has to say
//
// In all of them an argument may be repeated along some dimensions: repetition
// commutes with everything that is elementwise in those dimensions.
//
// How the normal form comes about: sums hold no sums and products no products,
// numeric factors are held by sums only (a multiple of a term is a sum of one
// argument), and arguments are sorted by the ids of their terms. So each
// constructor has to look at the outermost node of its arguments only, and
// costs no more than sorting what these consist of. Terms are never rewritten
// once they are made. The normal form does not decide equality: (a + b) · c is
// not multiplied out, since that would make terms of exponential size. A plan
// whose proof would need that is refused.
//
//===----------------------------------------------------------------------===//

#include "Term.h"

#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <bit>
#include <functional>

using namespace plait::proof;
using llvm::ArrayRef;
using llvm::SmallVector;
using llvm::StringRef;

Letters plait::proof::countLetters(size_t rank) {
  return llvm::to_vector_of<int, 4>(llvm::seq<size_t>(0, rank));
}

/// Whether the dimensions are the result's, in order and without repetition.
static bool isIdentity(const Letters &letters) {
  return llvm::equal(letters, llvm::seq<int>(0, letters.size()));
}

/// Whether no letter is there twice either.
static bool isAscending(const Letters &letters) {
  return std::adjacent_find(letters.begin(), letters.end(),
                            std::greater_equal<int>()) == letters.end();
}

static bool isEqual(const Argument &a, const Argument &b) {
  return a.term == b.term && a.factor == b.factor && a.letters == b.letters;
}

/// By id and not by address, so that two runs order alike. Factors do not
/// count: equal terms have to come next to each other to be added up.
static bool isBefore(const Argument &a, const Argument &b) {
  return a.term != b.term ? a.term->id < b.term->id : a.letters < b.letters;
}

/// `inner` with the letters that `outer` gives to its dimensions.
///
/// Composes two namings, as a nested einsum is flattened.
static Letters rename(const Letters &inner, const Letters &outer) {
  return llvm::to_vector_of<int, 4>(
      llvm::map_range(inner, [&](int letter) { return outer[letter]; }));
}

//===----------------------------------------------------------------------===//
// Interning
//===----------------------------------------------------------------------===//

/// Of a term whose name is interned and whose arguments are final. The hash
/// depends on addresses, which nothing that is printed does.
static llvm::hash_code computeHash(const Term &term) {
  llvm::hash_code hash = llvm::hash_combine(
      int(term.kind), term.name.data(), term.attrs,
      llvm::hash_combine_range(term.shape.begin(), term.shape.end()));
  for (const Argument &argument : term.arguments)
    hash = llvm::hash_combine(hash, argument.term,
                              std::bit_cast<uint64_t>(argument.factor),
                              llvm::hash_combine_range(argument.letters.begin(),
                                                       argument.letters.end()));
  return hash;
}

/// The hash tells most apart before anything else is looked at.
bool Terms::ByContent::isEqual(const Entry &one, const Entry &other) {
  const Term *a = one.term, *b = other.term;
  if (a == b)
    return true;
  auto isTerm = [](const Term *term) {
    return term != Address::getEmptyKey() && term != Address::getTombstoneKey();
  };
  return one.hash == other.hash && isTerm(a) && isTerm(b) &&
         a->kind == b->kind && a->name.data() == b->name.data() &&
         a->attrs == b->attrs && a->shape == b->shape &&
         llvm::equal(a->arguments, b->arguments, ::isEqual);
}

/// 1. The name becomes the one that is kept, so that it can be compared by its
///    address and outlives the caller's.
/// 2. A term that is known is returned as it was made: `origin` and `inClaim`
///    are those of the first.
/// 3. Another one is added to a deque, in which terms do not move.
const Term *Terms::intern(Term &&term) {
  // 1. The name.
  if (!term.name.empty())
    term.name = names.insert(term.name).first->getKey();
  // 2. Known?
  size_t hash = computeHash(term);
  if (auto found = known.find({&term, hash}); found != known.end())
    return found->term;
  // 3. New.
  term.id = terms.size();
  term.inClaim = isClaim;
  term.origin = origin;
  const Term *kept = &terms.emplace_back(std::move(term));
  known.insert({kept, hash});
  return kept;
}

/// Looks at all terms, so it is for messages only.
llvm::DenseMap<mlir::Operation *, SmallVector<const Term *, 1>>
Terms::findStrangers() const {
  llvm::DenseMap<mlir::Operation *, SmallVector<const Term *, 1>> strangers;
  for (const Term &term : terms)
    if (!term.inClaim && term.origin)
      strangers[term.origin].push_back(&term);
  return strangers;
}

/// Each term once, although many share parts. What is in the claim consists of
/// terms in the claim only, so the search stops there.
void plait::proof::findStrangers(const Term *term,
                                 llvm::function_ref<void(const Term *)> visit) {
  llvm::DenseSet<const Term *> seen;
  SmallVector<const Term *> left{term};
  while (!left.empty()) {
    const Term *next = left.pop_back_val();
    if (next->inClaim || !seen.insert(next).second)
      continue;
    visit(next);
    for (const Argument &argument : next->arguments)
      left.push_back(argument.term);
  }
}

const Term *Terms::leaf(StringRef name, ArrayRef<int64_t> shape) {
  if (noted)
    return note({Call::Leaf, name, {}, {}, {}, SmallVector<int64_t, 4>(shape)})
        .term;
  Term term{Term::Leaf, name};
  term.shape.assign(shape.begin(), shape.end());
  return intern(std::move(term));
}

/// A leaf of that name: parameters and inputs begin with "@" or are words.
static constexpr StringRef kOne = "1";

const Term *Terms::one() {
  if (noted)
    return note({Call::One}).term;
  if (!unit)
    unit = leaf(kOne, {});
  return unit;
}

static bool isOne(const Term *term) {
  return term->kind == Term::Leaf && term->name == kOne;
}

/// Numbers are multiples of one, hence sums of at most one argument.
std::optional<double> Term::getNumber() const {
  if (isZero())
    return 0;
  if (isOne(this))
    return 1;
  if (kind != Sum || arguments.size() != 1 || !isOne(arguments[0].term))
    return std::nullopt;
  return arguments[0].factor;
}

//===----------------------------------------------------------------------===//
// Sums and products
//===----------------------------------------------------------------------===//

/// The term of all letters that its arguments have, in ascending order.
///
/// Callers number letters as they like; in the term they become 0, 1, … without
/// gaps, so that the same expression in other letters is the same term.
/// Arguments must have no two equal entries for a sum.
Expression Terms::finish(Term::Kind kind,
                         SmallVector<Argument, 2> &&arguments) {
  SmallVector<int64_t> extents; // by letter, -1: there is none
  for (const Argument &argument : arguments)
    for (auto [letter, extent] :
         llvm::zip_equal(argument.letters, argument.term->shape)) {
      if (letter >= int(extents.size()))
        extents.resize(letter + 1, -1);
      extents[letter] = extent;
    }
  Expression result;
  Term term{kind};
  SmallVector<int> position(extents.size());
  for (auto [letter, extent] : llvm::enumerate(extents)) {
    if (extent < 0)
      continue;
    position[letter] = result.letters.size();
    result.letters.push_back(letter);
    term.shape.push_back(extent);
  }
  for (Argument &argument : arguments)
    for (int &letter : argument.letters)
      letter = position[letter];
  // S4, P1
  if (arguments.size() == 1 && arguments[0].factor == 1 &&
      isIdentity(arguments[0].letters))
    return {arguments[0].term, result.letters};
  if (!llvm::is_sorted(arguments, isBefore))
    llvm::sort(arguments, isBefore);
  term.arguments = std::move(arguments);
  result.term = intern(std::move(term));
  return result;
}

/// 1. Sums among the arguments are replaced by their arguments (S1), whose
///    factors are multiplied.
/// 2. The order makes equal terms neighbours (S2); these are added up (S3).
/// 3. What has become zero goes (S3).
/// The sort is stable, so that factors are added in the order in which they
/// were given. What a residual is the sum of grows with each layer: nothing of
/// it is copied twice. A sum of one term in its own order of letters is that
/// term, which callers with a factor leave to this.
Expression Terms::sum(ArrayRef<Argument> given) {
  if (noted)
    return note({Call::Sum, {}, {}, SmallVector<Argument, 2>(given)});
  if (given.size() == 1 && given[0].factor == 1 &&
      isAscending(given[0].letters))
    return {given[0].term, given[0].letters};
  SmallVector<Argument, 2> all;
  size_t count = 0;
  for (const Argument &argument : given)
    count +=
        argument.term->kind == Term::Sum ? argument.term->arguments.size() : 1;
  all.reserve(count);
  for (const Argument &argument : given) {
    if (argument.term->kind != Term::Sum) {
      all.push_back(argument);
      continue;
    }
    // 1. Flatten.
    for (const Argument &inner : argument.term->arguments) // S1
      all.push_back({inner.term, rename(inner.letters, argument.letters),
                     argument.factor * inner.factor});
  }
  // 2. Collect. Mostly they are sorted already.
  if (!llvm::is_sorted(all, isBefore))
    llvm::stable_sort(all, isBefore);
  size_t kept = 0;
  for (Argument &argument : all)
    if (kept > 0 && all[kept - 1].term == argument.term &&
        all[kept - 1].letters == argument.letters)
      all[kept - 1].factor += argument.factor; // S2, S3
    else if (Argument &place = all[kept++]; &place != &argument)
      place = std::move(argument);
  all.truncate(kept);
  // 3. Cancel.
  llvm::erase_if(all, [](const Argument &own) { return own.factor == 0; });
  return finish(Term::Sum, std::move(all));
}

/// Moves the factor of a term that is a multiple of another one into `factor`.
///
/// Only a sum of one argument is a multiple; any other sum stays what it is.
static Argument takeFactor(const Argument &argument, double &factor) {
  const Term *term = argument.term;
  factor *= argument.factor;
  if (term->kind != Term::Sum || term->arguments.size() != 1)
    return {term, argument.letters};
  const Argument &inner = term->arguments[0];
  factor *= inner.factor;
  return {inner.term, rename(inner.letters, argument.letters)};
}

/// Factors are taken out of all arguments and put before the result (P2), ones
/// are dropped and products flattened (P1, P3). Sums are not multiplied out.
Expression Terms::product(ArrayRef<Argument> given, double factor) {
  if (noted)
    return note({Call::Product,
                 {},
                 {},
                 SmallVector<Argument, 2>(given),
                 {},
                 {},
                 factor});
  SmallVector<Argument, 2> arguments;
  for (const Argument &argument : given) {
    if (argument.term->isZero()) // P3
      return sum({});
    Argument plain = takeFactor(argument, factor); // P2
    if (plain.term == one())
      continue; // P3
    if (plain.term->kind == Term::Product)
      for (const Argument &inner : plain.term->arguments) // P1
        arguments.push_back({inner.term, rename(inner.letters, plain.letters)});
    else
      arguments.push_back(plain);
  }
  if (arguments.empty())
    return sum(Argument{one(), {}, factor});
  if (arguments.size() == 1)
    return sum(Argument{arguments[0].term, arguments[0].letters, factor});
  Expression product = finish(Term::Product, std::move(arguments));
  if (factor == 1) // S4
    return product;
  return sum(Argument{product.term, product.letters, factor});
}

//===----------------------------------------------------------------------===//
// Everything else
//===----------------------------------------------------------------------===//

/// Letters are numbered anew: those of the result first, in its order, then
/// those that are reduced, in the order of the arguments. So equal applications
/// are one term whatever letters the caller had. The name has to say all of the
/// meaning that `attrs` does not.
Expression Terms::apply(StringRef name, mlir::Attribute attrs,
                        ArrayRef<Argument> arguments, ArrayRef<int> result,
                        ArrayRef<int64_t> given) {
  if (noted)
    return note({Call::Apply, name, attrs, SmallVector<Argument, 2>(arguments),
                 Letters(result), SmallVector<int64_t, 4>(given)});
  Term term{Term::Apply, name, attrs};
  // By number. Letters are few: going through them is faster than a table.
  SmallVector<int> letters(result);
  SmallVector<int64_t> extents(result.size(), 0);
  auto number = [&](int letter) {
    auto found = llvm::find(letters, letter);
    if (found == letters.end()) {
      letters.push_back(letter);
      extents.push_back(0);
      return int(letters.size()) - 1;
    }
    return int(found - letters.begin());
  };
  for (const Argument &argument : arguments) {
    Argument &own = term.arguments.emplace_back(argument);
    for (auto [letter, extent] :
         llvm::zip_equal(own.letters, argument.term->shape)) {
      letter = number(letter);
      extents[letter] = extent;
    }
  }
  if (!given.empty())
    llvm::copy(given.take_front(result.size()), extents.begin());
  term.shape.assign(extents.begin(), extents.begin() + result.size());
  return {intern(std::move(term)), Letters(result)};
}

/// Zero in any argument makes the result zero. Sums of several terms are not
/// distributed over, for the same reason as in products.
Expression Terms::applyLinear(StringRef name, mlir::Attribute attrs,
                              ArrayRef<Argument> given, ArrayRef<int> result,
                              ArrayRef<int64_t> extents) {
  if (noted)
    return note({Call::Linear, name, attrs, SmallVector<Argument, 2>(given),
                 Letters(result), SmallVector<int64_t, 4>(extents)});
  double factor = 1;
  SmallVector<Argument, 2> arguments;
  for (const Argument &argument : given) {
    if (argument.term->isZero())
      return sum({});
    arguments.push_back(takeFactor(argument, factor)); // L1
  }
  Expression applied = apply(name, attrs, arguments, result, extents);
  return sum(Argument{applied.term, applied.letters, factor});
}

/// `argument`, or what it is a reduction of by the same `name`. R1
///
/// Reduced letters of the inner reduction get numbers that no other letter has.
static Argument unwrap(const Argument &argument, StringRef name) {
  const Term *term = argument.term;
  if (term->kind != Term::Apply || term->name != name)
    return argument;
  const Argument &inner = term->arguments[0];
  int rank = term->shape.size(), fresh = rank;
  for (int letter : argument.letters)
    fresh = std::max(fresh, letter + 1);
  Argument result{inner.term, {}};
  for (int letter : inner.letters)
    result.letters.push_back(letter < rank ? argument.letters[letter]
                                           : fresh + letter);
  return result;
}

/// 1. A sum is reduced summand by summand (R2), so that it does not matter
///    whether a program adds before it reduces.
/// 2. Of each, a letter that is reduced and that it has is summed over; one
///    that it does not have multiplies it by the extent.
/// 3. Two sums in a row become one over all letters (R1).
Expression Terms::reduceSum(const Argument &argument, ArrayRef<int> result) {
  if (noted)
    return note({Call::AddUp, {}, {}, {argument}, Letters(result)});
  SmallVector<Argument> given;
  // 1. Summands.
  if (argument.term->kind == Term::Sum)
    for (const Argument &inner : argument.term->arguments) // L1, R2
      given.push_back({inner.term, rename(inner.letters, argument.letters),
                       argument.factor * inner.factor});
  else
    given.push_back(argument);
  SmallVector<Argument> reduced;
  for (Argument &part : given) {
    // 2. Letters.
    bool isReduced = false;
    for (auto [letter, extent] :
         llvm::zip_equal(argument.letters, argument.term->shape)) {
      if (llvm::is_contained(result, letter))
        continue;
      bool has = llvm::is_contained(part.letters, letter);
      isReduced |= has;
      part.factor *= has ? 1 : double(extent);
    }
    if (!isReduced) {
      reduced.push_back(std::move(part));
      continue;
    }
    // 3. Sums of sums.
    Letters left;
    llvm::copy_if(result, std::back_inserter(left), [&](int letter) {
      return llvm::is_contained(part.letters, letter);
    });
    Expression sum =
        apply("sum", {}, unwrap({part.term, part.letters}, "sum"), left);
    reduced.push_back({sum.term, sum.letters, part.factor});
  }
  return sum(reduced);
}

/// Not linear: neither factors nor summands come out. The result's letters have
/// to be some of the argument's.
Expression Terms::reduceMaximum(const Argument &argument,
                                ArrayRef<int> result) {
  if (noted)
    return note({Call::Maximum, {}, {}, {argument}, Letters(result)});
  return apply("maximum", {}, unwrap(argument, "maximum"), result);
}

static constexpr StringRef kCast = "nn.cast";
static constexpr StringRef kTotal = "sum over microbatches";

static bool isApplied(const Term *term, StringRef name) {
  return term->kind == Term::Apply && term->name == name;
}

/// Whether `term` is what microbatches add up to, rounded or not.
static bool isTotal(const Term *term) {
  while (isApplied(term, kCast))
    term = term->arguments[0].term;
  return isApplied(term, kTotal);
}

static bool isWide(const Term *cast) {
  return llvm::cast<mlir::TypeAttr>(cast->attrs).getValue().isF32();
}

/// Linear up to rounding (L1), like all that the proof shows. A number that was
/// widened to f32 and comes back has lost nothing (C1); the reverse, f32 by way
/// of bf16, rounds and stays.
Expression Terms::cast(const Argument &argument, mlir::TypeAttr type) {
  if (noted)
    return note({Call::Cast, {}, type, {argument}});
  if (auto &parts = argument.term->arguments;
      argument.term->kind == Term::Sum && parts.size() > 1 &&
      llvm::all_of(parts, [](auto &part) { return isTotal(part.term); })) {
    SmallVector<Argument> rounded; // C2
    for (const Argument &part : parts) {
      Expression own =
          cast({part.term, rename(part.letters, argument.letters), part.factor},
               type);
      rounded.push_back({own.term, own.letters, argument.factor});
    }
    return sum(rounded);
  }
  double factor = 1;
  Argument plain = takeFactor(argument, factor); // L1
  if (plain.term->isZero())
    return sum({});
  const Term *term = plain.term;
  if (isApplied(term, kCast) && isWide(term) &&
      !type.getValue().isF32()) { // C1
    const Argument &inner = term->arguments[0];
    return sum(
        Argument{inner.term, rename(inner.letters, plain.letters), factor});
  }
  Expression result = apply(kCast, type, plain, plain.letters);
  return sum(Argument{result.term, result.letters, factor});
}

/// r(Σa) of r(a), whose two casts `term` is; null if it is anything else.
const Term *Terms::roundTotal(const Term *term) {
  if (!isApplied(term, kCast) || !isWide(term))
    return nullptr;
  const Term *inner = term->arguments[0].term;
  if (!isApplied(inner, kCast) || isWide(inner))
    return nullptr;
  const Term *total = overMicrobatches(inner->arguments[0].term);
  for (const Term *own : {inner, term})
    total = cast({total, countLetters(total->shape.size())},
                 llvm::cast<mlir::TypeAttr>(own->attrs))
                .term;
  return total;
}

/// The sum of what each microbatch gives, of which the term has that of any
/// one. By summands, as reduceSum(); a factor is the same in all microbatches.
const Term *Terms::overMicrobatches(const Term *term) {
  SmallVector<Argument> parts;
  SmallVector<Argument, 2> given(term->arguments);
  if (term->kind != Term::Sum)
    given = {Argument{term, countLetters(term->shape.size())}};
  for (const Argument &part : given) { // M1
    Letters all = countLetters(part.term->shape.size());
    const Term *total = roundTotal(part.term); // M2
    if (!total)
      total = apply(kTotal, {}, Argument{part.term, all}, all).term;
    parts.push_back({total, part.letters, part.factor});
  }
  return sum(parts).term;
}

//===----------------------------------------------------------------------===//
// Printing
//===----------------------------------------------------------------------===//

/// Letters are left out: a message says what is computed, and op and types say
/// of which dimensions.
std::string plait::proof::print(const Term *term, int depth) {
  static constexpr size_t kMost = 4; // arguments
  if (term->kind == Term::Leaf)
    return term->name.str();
  if (term->isZero())
    return "0";
  if (depth == 0)
    return "…";
  bool infix = term->kind != Term::Apply;
  std::string out;
  for (auto [index, argument] : llvm::enumerate(term->arguments)) {
    if (index)
      out += !infix ? ", " : term->kind == Term::Sum ? " + " : " · ";
    if (index == kMost) {
      out += llvm::formatv("{0} more", term->arguments.size() - kMost);
      break;
    }
    if (argument.factor != 1)
      out += llvm::formatv("{0:g} · ", argument.factor);
    out += print(argument.term, depth - 1);
  }
  return (infix ? "" : term->name.str()) + "(" + out + ")";
}

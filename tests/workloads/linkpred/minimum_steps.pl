% The least number of resolution steps that proves each query, by breadth-first search over lists of goals.
% An oracle for the engine: written for reading, from the rules of the game and not from the engine.
%
% The data, one file of clauses:
%   graph(Graph, Selection, Atoms)    selection is leftmost or 'most-bound'; a state has at most Atoms goals
%   fact(Graph, Predicate, X, Y)
%   rule(Graph, Head, Body)           Head and the elements of Body are at(Predicate, X, Y)
%   query(Graph, Number, Atom)
%
% Called as: swipl -q minimum_steps.pl -- DATA DEPTH. Prints "Graph Number Steps" for each query, Steps 0 for none.

:- initialization(main, main).
:- dynamic graph/3, fact/4, rule/3, query/3.

main([Data, DepthText]) :-
    atom_number(DepthText, Depth),
    consult(Data),
    forall(query(Graph, Number, Atom),
           ( minimum(Graph, Atom, Depth, Steps),
             format("~w ~w ~w~n", [Graph, Number, Steps]) )).

minimum(Graph, Query, Depth, Steps) :-
    graph(Graph, Selection, Atoms),
    search(game(Graph, Query, Selection, Atoms), [[]-[Query]], [], 1, Depth, Steps).

% Frontier and Seen: Key-State, where Key is the state with its variables numbered.
search(_, _, _, Step, Depth, 0) :- Step > Depth, !.
search(_, [], _, _, _, 0) :- !.
search(Game, Frontier, Seen, Step, Depth, Steps) :-
    findall(Next, (member(_-State, Frontier), step(Game, State, Next)), Found),
    (   memberchk([], Found)
    ->  Steps = Step
    ;   maplist(keyed, Found, Keyed),
        sort(1, @<, Keyed, Unique),
        new(Unique, Seen, New),
        append(Seen, New, Longer),
        sort(1, @<, Longer, NowSeen),
        Next is Step + 1,
        search(Game, New, NowSeen, Next, Depth, Steps)
    ).

keyed(State, Key-State) :- copy_term(State, Key), numbervars(Key, 0, _).

% Both sorted by key.
new([], _, []).
new([Pair|Pairs], [], [Pair|Pairs]) :- !.
new([Key-State|Pairs], [Old-OldState|Olds], New) :-
    compare(Order, Key, Old),
    (   Order = (=) -> new(Pairs, [Old-OldState|Olds], New)
    ;   Order = (<) -> New = [Key-State|More], new(Pairs, [Old-OldState|Olds], More)
    ;   new([Key-State|Pairs], Olds, New)
    ).

step(game(Graph, Query, Selection, Atoms), State, Next) :-
    select_goal(Selection, State, Goal, Rest),
    resolve(Graph, Query, Goal, Body),
    append(Body, Rest, Goals),
    exclude(known(Graph, Query), Goals, Next),
    length(Next, Length),
    Length =< Atoms.

% The query is no fact while it is being proved.
resolve(Graph, Query, at(P, X, Y), []) :- fact(Graph, P, X, Y), at(P, X, Y) \== Query.
resolve(Graph, _, Goal, Body) :- rule(Graph, Goal, Body).

known(Graph, Query, at(P, X, Y)) :- ground(X-Y), at(P, X, Y) \== Query, fact(Graph, P, X, Y), !.

select_goal(leftmost, [Goal|Rest], Goal, Rest).
select_goal('most-bound', State, Goal, Rest) :-
    maplist(constants, State, Counts),
    max_list(Counts, Most),
    nth0(Index, Counts, Most), !,
    nth0(Index, State, Goal, Rest).

constants(at(_, X, Y), Count) :- include(ground, [X, Y], Bound), length(Bound, Count).
